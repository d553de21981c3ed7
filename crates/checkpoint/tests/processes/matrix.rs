//! SPECIFICATION.md says for each kind of state which test has it; so there is such a test.

use std::fs;
use std::path::Path;

#[test]
fn tests_of_all_kinds_of_state_are_there() {
    let crate_ = Path::new(env!("CARGO_MANIFEST_DIR"));
    let text = fs::read_to_string(crate_.join("../../SPECIFICATION.md")).expect("it is there");
    let table = text.split("| state | tests |").nth(1).expect("the table is there");
    let rows: Vec<&str> = table.lines().skip(2).take_while(|line| line.starts_with('|')).collect();
    assert!(rows.len() > 20, "{} kinds of state have a test", rows.len());
    for row in rows {
        let (_, tests) = row.trim_end_matches(['|', ' ']).rsplit_once('|').expect("it has cells");
        let mut count = 0;
        for test in tests.split('`').filter(|word| word.contains("::")) {
            let (module, name) = test.split_once("::").expect("it has");
            let source = crate_.join(format!("tests/processes/{module}.rs"));
            let source = fs::read_to_string(&source).unwrap_or_default();
            let is_test = source.contains(&format!("#[test]\nfn {name}() {{"));
            assert!(is_test, "there is no test {test}");
            count += 1;
        }
        assert!(count > 0, "no test: {row}");
    }
}
