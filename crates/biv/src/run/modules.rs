//! Multiboot modules as `--initrd` names them: `FILE ARG...,FILE ARG...`, as QEMU has it.

use std::path::{Path, PathBuf};

use vmm::Module;

use super::Error;

/// Reads the modules that `list` names. A list that is the path of a file is that file.
pub fn read_list(list: &Path) -> Result<Vec<Module>, Error> {
    if list.is_file() {
        let data = super::read(list)?;
        return Ok(vec![Module { data, command_line: list.to_string_lossy().into_owned() }]);
    }
    list.to_string_lossy()
        .split(',')
        .map(|item| {
            let item = item.trim();
            let path = PathBuf::from(item.split(' ').next().unwrap_or_default());
            Ok(Module { data: super::read(&path)?, command_line: item.to_owned() })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_has_files_and_their_arguments() {
        let list = read_list(Path::new("/proc/self/comm one two,/proc/self/cmdline")).unwrap();
        let lines: Vec<_> = list.iter().map(|module| module.command_line.as_str()).collect();
        assert_eq!(lines, ["/proc/self/comm one two", "/proc/self/cmdline"]);
        assert!(list.iter().all(|module| !module.data.is_empty()));
    }

    #[test]
    fn a_module_that_is_not_there_is_named() {
        let error = read_list(Path::new("/proc/self/comm,/no/such")).unwrap_err().to_string();
        assert!(error.contains("/no/such:"), "{error}");
    }
}
