//! What `biv xen` shows of paravirtual domains.

use serde_json::Value;

use super::place::Place;

#[test]
fn paravirtual_domains_are_listed_apart() {
    let place = Place::new();
    place.detach("pc", "sleep 1000");
    let options = ["run", "-d", "--xen", "--name", "db", "--mem", "128M", "--net", "none"];
    let command = ["--", "sh", "-c", "sleep 1000"];
    assert_eq!(place.says(&[&options[..], &command].concat()), "db\n");

    let rows: Value = serde_json::from_str(&place.says(&["xen", "list", "--format", "json"]))
        .expect("it is JSON");
    let rows = rows.as_array().expect("a list");
    assert_eq!(rows.len(), 1, "{rows:?}");
    assert_eq!((&rows[0]["name"], &rows[0]["state"]), (&"db".into(), &"running".into()));
    assert_eq!(rows[0]["memory"], 128 << 20);
    assert!(rows[0]["computed"].as_f64().is_some_and(|seconds| seconds > 0.0), "{rows:?}");
    let table = place.says(&["xen", "list"]);
    let lines: Vec<&str> = table.lines().collect();
    assert!(lines[0].starts_with("NAME  STATE "), "{table}");
    assert!(lines[1].starts_with("db    running "), "{table}");
    assert!(lines[1].contains(" 128M ") && lines[1].ends_with("sleep 1000"), "{table}");
    assert_eq!(lines.len(), 2, "{table}");

    let sheet = place.says(&["xen", "info", "db"]);
    assert!(sheet.contains("name         db\nstate        running\n"), "{sheet}");
    let complaint = place.complains(&["xen", "info", "pc"]);
    assert!(complaint.contains("domain pc is not a paravirtual domain"), "{complaint}");
    assert!(place.complains(&["xen", "info", "none"]).contains("no domain none"));
    limits_hold_for_the_next_domain(&place);
    place.says(&["rm", "--force", "db"]);
}

/// Beside `db`, which may have 128 MiB and a processor.
fn limits_hold_for_the_next_domain(place: &Place) {
    place.says(&["xen", "admission", "--memory", "256M", "--domain-cpus", "1"]);
    let table = place.says(&["xen", "admission"]);
    assert!(table.contains("memory               256M       128M\n"), "{table}");
    let start = ["run", "-d", "--xen", "--name", "next", "--net", "none"];
    let refused = |options: &[&str]| {
        let complaint = place.complains(&[&start, options, &["--", "true"]].concat());
        assert!(complaint.contains("the domain is not admitted: it may have "), "{complaint}");
    };
    refused(&["--mem", "129M"]);
    // What it may have one day counts.
    refused(&["--mem", "96M", "--max-mem", "192M"]);
    refused(&["--mem", "96M", "--cpus", "2"]);
    assert_eq!(place.says(&["ps", "--all"]).lines().count(), 3);
    place.says(&["xen", "admission", "--memory", "none", "--domain-cpus", "none"]);
    let sleeps = ["--mem", "129M", "--", "sleep", "1000"];
    assert_eq!(place.says(&[&start[..], &sleeps].concat()), "next\n");
    place.says(&["rm", "--force", "next"]);
    let complaint = place.complains(&["xen", "admission", "--memory", "much"]);
    assert!(complaint.contains("invalid value 'much'"), "{complaint}");
}
