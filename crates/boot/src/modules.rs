//! The meaning of `--initrd` for a kernel that takes modules.

/// A module to be read: a file and the command line that goes with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModuleFile {
    /// The file's path.
    pub path: String,
    /// The module's command line, which begins with the path as in QEMU.
    pub command_line: String,
}

/// Split `--initrd` as QEMU does for Multiboot kernels: modules are separated by commas, a doubled
/// comma is one in a name, and what follows the first blank of a module is its arguments.
pub fn split_modules(argument: &str) -> Vec<ModuleFile> {
    let mut items = vec![String::new()];
    let mut characters = argument.chars().peekable();
    while let Some(character) = characters.next() {
        if character == ',' && characters.next_if_eq(&',').is_none() {
            items.push(String::new());
        } else if let Some(item) = items.last_mut() {
            item.push(character);
        }
    }
    items
        .into_iter()
        .map(|item| item.trim_start().to_owned())
        .filter(|item| !item.is_empty())
        .map(|item| {
            let path = item.split(' ').next().unwrap_or_default().to_owned();
            ModuleFile { path, command_line: item }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(argument: &str, expected: &[(&str, &str)]) {
        let got = split_modules(argument);
        let got: Vec<_> = got.iter().map(|m| (m.path.as_str(), m.command_line.as_str())).collect();
        assert_eq!(got, expected, "{argument:?}");
    }

    #[test]
    fn modules_are_split_as_qemu_does() {
        check("", &[]);
        check("a", &[("a", "a")]);
        check("a arg,b", &[("a", "a arg"), ("b", "b")]);
        check("a x=1,,2 y,b/c d", &[("a", "a x=1,2 y"), ("b/c", "b/c d")]);
        check(" a,,b ,, c,", &[("a,b", "a,b , c")]);
    }
}
