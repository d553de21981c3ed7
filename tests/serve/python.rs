//! The client in Python that is an example, against a server and a machine.

use std::path::Path;
use std::process::Command;

use super::place::Place;

#[test]
fn the_example_in_python_makes_a_machine() {
    if Command::new("python3").arg("--version").output().is_err() {
        println!("left out: there is no python3 here");
        return;
    }
    let place = Place::new();
    let client = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/client.py");
    let mut command = Command::new("timeout");
    command.arg(whole_machine::PATIENCE_SECONDS).arg("python3").arg(client).arg(place.socket());
    let output = command.output().expect("python3 can be started");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{output:?}");
    let told: Vec<_> = said.lines().filter_map(|line| line.strip_prefix("event: ")).collect();
    assert_eq!(told, ["created", "started", "running", "ended", "removed"]);
    for line in ["listed: True", "exec: 0 5", "snapshot: True"] {
        assert!(said.lines().any(|it| it == line), "{line} is not in {said}");
    }
    assert_eq!(place.get("/v1/domains?all=true").json(), serde_json::json!([]));
}
