//! Verbs for all domains at once, and lists of some.

use crate::place::Place;

/// The names that a list has, in order.
#[track_caller]
fn names(place: &Place, options: &[&str]) -> String {
    let said = place.says(&[&["ps", "-q"], options].concat());
    let mut names: Vec<&str> = said.lines().collect();
    names.sort_unstable();
    names.join(" ")
}

#[test]
fn all_domains_are_paused_stopped_and_removed() {
    let place = Place::new();
    assert_eq!(names(&place, &["--all"]), "");
    for name in ["web1", "web2", "cache"] {
        place.detach(name, "sleep 1000");
    }
    assert_eq!(names(&place, &[]), "cache web1 web2");
    assert_eq!(names(&place, &["--filter", "name=web"]), "web1 web2");
    place.says(&["pause", "web1"]);
    assert_eq!(names(&place, &["--filter", "state=paused"]), "web1");
    let filters = ["--filter", "state=running", "--filter", "name=web"];
    assert_eq!(names(&place, &filters), "web2");
    place.says(&["pause", "cache"]);
    place.says(&["resume", "--all"]);
    assert_eq!(names(&place, &["--filter", "status=running"]), "cache web1 web2");
    // Who still runs is not removed by that.
    place.says(&["kill", "cache"]);
    assert_eq!(names(&place, &["--filter", "state=ended"]), "cache");
    place.says(&["rm", "--all"]);
    assert_eq!(names(&place, &["-a"]), "web1 web2");
    place.says(&["stop", "--all"]);
    assert_eq!((names(&place, &[]), names(&place, &["-a"])), (String::new(), "web1 web2".into()));
    place.detach("web3", "sleep 1000");
    place.says(&["rm", "--all", "--force"]);
    assert_eq!(names(&place, &["-a"]), "");
    // There is nothing to do, and that is no error.
    place.says(&["stop", "--all"]);
}

#[test]
fn what_says_nothing_of_domains_is_refused() {
    let place = Place::new();
    assert!(place.complains(&["stop"]).contains("<NAME>"));
    assert!(place.complains(&["stop", "--all", "web"]).contains("cannot be used with"));
    assert!(place.complains(&["ps", "--filter", "colour=red"]).contains("name=TEXT"));
}
