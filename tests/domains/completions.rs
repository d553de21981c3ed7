//! Names that a shell completes: of domains, images and kernels that there are.

use std::process::Command;

use super::place::Place;
use whole_machine::{bivouac, text};

/// What bash completes these words to, of which the last is not whole.
#[track_caller]
fn completed(place: &Place, words: &[&str]) -> Vec<String> {
    const SCRIPT: &str = r#"
        source <(biv completions bash)
        COMP_WORDS=(biv "$@"); COMP_CWORD=$#; COMP_TYPE=9
        _clap_complete_biv biv "${@: -1}" "${@: -2:1}"
        printf '%s\n' "${COMPREPLY[@]}"
    "#;
    let directory = bivouac().parent().expect("it is in one").display().to_string();
    let path = format!("{directory}:{}", std::env::var("PATH").unwrap_or_default());
    let mut bash = Command::new("bash");
    bash.args(["--norc", "-c", SCRIPT, "bash"]).args(words);
    let output = bash.env("PATH", path).env("XDG_RUNTIME_DIR", &place.path).output();
    let output = output.expect("there is bash");
    assert!(output.status.success(), "{output:?}");
    text(&output.stdout).lines().map(|line| line.trim().to_owned()).collect()
}

#[test]
fn names_of_domains_are_completed() {
    let place = Place::new();
    place.detach("web", "sleep 1000");
    place.detach("webber", "exit 0");
    place.detach("other", "exit 0");
    place.says(&["wait", "webber", "other"]);
    assert_eq!(completed(&place, &["stop", "we"]), ["web", "webber"]);
    assert_eq!(completed(&place, &["exec", "-it", "o"]), ["other"]);
    assert_eq!(completed(&place, &["logs", "--since", "1h", "webb"]), ["webber"]);
    // Pods have names of their own.
    assert_eq!(completed(&place, &["pod", "stop", "we"]), [""]);
    assert_eq!(completed(&place, &["resta"]), ["restart"]);
    assert_eq!(completed(&place, &["run", "--label"]), ["--label"]);
}
