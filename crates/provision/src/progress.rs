//! A progress bar on standard error, for downloads that take longer than a second on a terminal.

use std::io::{IsTerminal, Write};
use std::time::Instant;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use spec::shown::harmless;

use super::limits::PROGRESS_DELAY;

/// A bar from 0 to 100 with a line of text.
#[derive(Debug)]
pub struct Progress {
    bar: ProgressBar,
    started: Instant,
}

impl Progress {
    /// A bar that stays hidden for [`PROGRESS_DELAY`], and for good if nobody could see it.
    pub fn start() -> Progress {
        let bar = ProgressBar::with_draw_target(Some(100), ProgressDrawTarget::hidden());
        let style = ProgressStyle::with_template("{bar:30} {percent:>3}%  {wide_msg}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        Progress { bar, started: Instant::now() }
    }

    /// Says what is being done.
    pub fn say(&self, what: &str) {
        tracing::info!("{what}");
        self.bar.set_message(what.to_owned());
        self.show();
    }

    /// Tells what the user is to know, and stays.
    pub fn tell(&self, what: &str) {
        // Without a standard error there is nobody to tell.
        self.bar.suspend(|| drop(writeln!(std::io::stderr(), "biv: {}", harmless(what))));
    }

    /// How much of it is done.
    pub fn set(&self, percent: f64) {
        self.bar.set_position(percent.clamp(0.0, 100.0) as u64);
        self.show();
    }

    fn show(&self) {
        let hidden = self.bar.is_hidden();
        if hidden && self.started.elapsed() > PROGRESS_DELAY && std::io::stderr().is_terminal() {
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
        self.bar.tick();
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
