//! The code map and the glossary name files that exist.

use std::fs;
use std::process::Command;

use super::root;

/// The documents that lead a reader through the code by its paths.
const DOCUMENTS: [&str; 2] = ["ARCHITECTURE.md", "GLOSSARY.md"];

/// Whether a word between backquotes means a file or a folder of the project.
fn is_path(word: &str) -> bool {
    let is_in_project = !word.starts_with('/') && !word.contains(':');
    is_in_project && (word.ends_with(".rs") || word.starts_with("crates/"))
}

/// Whether `path` is a listed file or folder, or the end of one: "run/guest.rs" is named beside its crate.
fn exists(path: &str, listed: &str) -> bool {
    let (file, folder) = (format!("/{path}"), format!("/{path}/"));
    let mut names = listed.lines().map(|name| format!("/{name}"));
    names.any(|name| name.ends_with(&file) || name.starts_with(&folder))
}

#[test]
fn documents_name_files_that_exist() {
    let output = Command::new("git").arg("ls-files").current_dir(root()).output();
    let listed = String::from_utf8(output.expect("git can be started").stdout);
    let listed = listed.expect("file names are UTF-8");
    let mut missing = Vec::new();
    for document in DOCUMENTS {
        let text = fs::read_to_string(root().join(document)).expect("it is there");
        for (number, line) in text.lines().enumerate() {
            let words = line.split('`').skip(1).step_by(2).map(|word| word.trim_end_matches('/'));
            let lost = words.filter(|word| is_path(word) && !exists(word, &listed));
            missing.extend(lost.map(|word| format!("{document}:{}: {word}", number + 1)));
        }
    }
    assert!(missing.is_empty(), "no such files: {}", missing.join(", "));
}
