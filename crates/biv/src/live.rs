//! Tables that are shown again and again, of what has changed since the last time: `biv stats`, `biv xen top`.

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use serde::Serialize;

use crate::cli::Format;
use crate::life::Error;
use crate::print;

/// How often a table is shown.
pub(crate) const PERIOD: Duration = Duration::from_secs(1);

/// How such a table is shown.
pub(crate) struct Live {
    pub(crate) format: Format,
    /// Once, as JSON always is.
    pub(crate) once: bool,
    /// For how long it is looked if it is shown once.
    pub(crate) once_period: Duration,
}

impl Live {
    /// Show what `rows` makes of two samples, the earlier one first, until somebody ends it.
    pub(crate) fn show<S, R: Serialize>(
        &self,
        mut sample: impl FnMut() -> Result<S, Error>,
        rows: impl Fn(&S, &S) -> Vec<R>,
        table: impl Fn(&[R]) -> String,
    ) -> Result<(), Error> {
        let once = self.once || self.format == Format::Json;
        let live = !once && io::stdout().is_terminal();
        let mut before = sample()?;
        loop {
            std::thread::sleep(if once { self.once_period } else { PERIOD });
            let now = sample()?;
            let rows = rows(&before, &now);
            if self.format == Format::Json {
                return Ok(print::json(&rows)?);
            }
            // To the upper left, and clear what is below.
            let begin = if live { "\x1b[H\x1b[J" } else { "" };
            print::text(&format!("{begin}{}", table(&rows)))?;
            io::stdout().flush()?;
            if once {
                return Ok(());
            }
            before = now;
        }
    }
}
