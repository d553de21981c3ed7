//! Parameters on the kernel's command line, and messages on its console.

use std::fs;

/// Say on the console what could not be done.
pub fn complain(trouble: &[String]) {
    for line in trouble {
        eprintln!("init: {line}");
    }
}

/// The rest of the first word of the kernel command line that begins with `name`.
pub fn kernel_parameter(name: &str) -> Option<String> {
    let line = fs::read_to_string("/proc/cmdline").ok()?;
    line.split_ascii_whitespace().find_map(|word| word.strip_prefix(name)).map(str::to_owned)
}
