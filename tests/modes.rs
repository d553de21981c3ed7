//! The ways in which a machine may execute its guest, each of which every test of whole machines
//! passes: user code translated, run directly or as suits it, on one processor and on four.
//!
//! A test is a function that takes a [`Mode`]; [`crate::in_each_mode!`] makes tests of it. In the
//! environment, `BIVOUAC_MODES="direct 4, auto 1"` leaves out all others.

use std::process::{Command, Output};

use vmm::Configuration;
pub use vmm::UserExecution;

use crate::{biv, bivouac, text};

/// What makes a machine a paravirtual one, by Xen's interface.
pub const PARAVIRTUAL: [&str; 3] = ["--xen", "--net", "none"];

/// How a machine executes its guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mode {
    /// Its user code.
    pub execution: UserExecution,
    /// On how many processors.
    pub processors: usize,
}

impl Mode {
    /// All of them.
    pub const ALL: [Mode; 6] = [
        Mode { execution: UserExecution::Translate, processors: 1 },
        Mode { execution: UserExecution::Direct, processors: 1 },
        Mode { execution: UserExecution::Auto, processors: 1 },
        Mode { execution: UserExecution::Translate, processors: 4 },
        Mode { execution: UserExecution::Direct, processors: 4 },
        Mode { execution: UserExecution::Auto, processors: 4 },
    ];

    /// The words that choose it.
    pub fn options(self) -> [&'static str; 4] {
        let processors = if self.processors == 1 { "1" } else { "4" };
        ["--user-exec", self.user_code(), "--cpus", processors]
    }

    fn user_code(self) -> &'static str {
        match self.execution {
            UserExecution::Translate => "translate",
            UserExecution::Direct => "direct",
            UserExecution::Auto => "auto",
        }
    }

    /// `biv run` with these options, to which arguments can be added; nobody ends it. No signal is
    /// ignored, though who runs the tests may have it so, as nohup(1) does.
    pub fn run(self, options: &[&str]) -> Command {
        let mut command = Command::new("env");
        command.arg("--default-signal").arg(bivouac());
        command.arg("run").args(self.options()).args(options);
        command
    }

    /// The same, ended when it takes too long, and without input.
    pub fn run_in_time(self, options: &[&str]) -> Command {
        biv(&[&["run"], &self.options()[..], options].concat())
    }

    /// Run a command in a fresh default machine.
    ///
    /// # Panics
    ///
    /// If it cannot be started.
    pub fn in_machine(self, options: &[&str], command: &[&str]) -> Output {
        let output = self.run_in_time(options).arg("--").args(command).output();
        output.expect("`timeout` can be started")
    }

    /// Run a shell script in a fresh default machine; it must succeed, and its output is returned.
    ///
    /// # Panics
    ///
    /// If it does not.
    pub fn shell(self, options: &[&str], script: &str) -> String {
        let output = self.in_machine(options, &["sh", "-c", script]);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{script}\n{said}{}", text(&output.stdout));
        text(&output.stdout)
    }

    /// The same for a machine that is built without the command.
    pub fn apply(self, configuration: Configuration) -> Configuration {
        let (user_execution, processors) = (self.execution, self.processors);
        Configuration { user_execution, processors, ..configuration }
    }

    /// Whether it is left out.
    pub fn is_unwanted(self) -> bool {
        let Ok(wanted) = std::env::var("BIVOUAC_MODES") else { return false };
        let name = format!("{} {}", self.user_code(), self.processors);
        !wanted.split(',').any(|one| one.trim() == name)
    }
}

/// Make a test in each mode of functions that take a [`Mode`].
#[macro_export]
macro_rules! in_each_mode {
    ($($test:ident),+ $(,)?) => {
        $crate::in_mode!(translated_on_1, Translate, 1, $($test),+);
        $crate::in_mode!(translated_on_4, Translate, 4, $($test),+);
        $crate::in_mode!(direct_on_1, Direct, 1, $($test),+);
        $crate::in_mode!(direct_on_4, Direct, 4, $($test),+);
        $crate::in_mode!(auto_on_1, Auto, 1, $($test),+);
        $crate::in_mode!(auto_on_4, Auto, 4, $($test),+);
    };
}

/// Make a test in one mode of functions that take a [`Mode`].
#[macro_export]
macro_rules! in_mode {
    ($name:ident, $execution:ident, $processors:literal, $($test:ident),+ $(,)?) => {
        mod $name {
            const MODE: $crate::modes::Mode = $crate::modes::Mode {
                execution: $crate::modes::UserExecution::$execution,
                processors: $processors,
            };
            $(#[test]
            fn $test() {
                if MODE.is_unwanted() {
                    println!("left out by BIVOUAC_MODES");
                } else {
                    super::$test(MODE);
                }
            })+
        }
    };
}
