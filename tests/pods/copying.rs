//! Large pods, whose memory is copied while they run, and images that go on from others.

use std::fs;

use serde_json::Value;
use whole_machine::waiting::wait_for;

use crate::moves::receive;
use crate::place::{COUNTS, LARGE, Place, end_of};

/// A pod with much memory.
fn large(place: &Place, name: &str) {
    place.detach(name, &format!("{LARGE}; {COUNTS}"));
    wait_for("it counts", || place.counts(name).len() > 2);
}

fn path(place: &Place, name: &str) -> String {
    place.path.join(name).display().to_string()
}

/// A report as JSON; none where the host cannot tell what a pod writes, which is said.
fn report(said: &str) -> Option<Value> {
    let report: Value = serde_json::from_str(said).expect("JSON");
    let rounds = report["rounds"].as_array().expect("a list");
    if rounds.is_empty() {
        println!("skipped: this host does not tell what processes write");
        return None;
    }
    Some(report)
}

#[test]
fn a_large_pod_is_copied_while_it_runs() {
    let Some(place) = Place::new() else { return };
    let image = path(&place, "large.pod");
    large(&place, "web");
    for compress in [&[][..], &["--compress"]] {
        let checkpoint = ["checkpoint", "--force", "-o", &image, "--format", "json", "web"];
        let said = place.says(&[&checkpoint[..], compress].concat());
        place.wait_for_more("web");
        place.check_large("web");
        place.says(&["restart", "-d", "--name", "twin", &image]);
        place.check_large("twin");
        place.wait_for_more("twin");
        place.says(&["rm", "-f", "twin"]);
        if let Some(report) = report(&said) {
            let copied = report["rounds"][0]["copied"].as_u64();
            assert!(copied > Some(50_000_000), "{report}");
        }
    }
    // A small one is written in one go.
    place.detach("small", COUNTS);
    let small = path(&place, "small.pod");
    let said = place.says(&["checkpoint", "-o", &small, "--format", "json", "small"]);
    let report: Value = serde_json::from_str(&said).expect("JSON");
    assert_eq!(report["rounds"], Value::Array(Vec::new()));
}

#[test]
fn a_large_pod_moves_while_it_runs() {
    let (Some(here), Some(there)) = (Place::new(), Place::new()) else { return };
    let socket = path(&there, "socket");
    large(&here, "web");
    let destination = format!("unix:{socket}");
    let receiver = receive(&there, &socket, &[]);
    let said = here.says(&["migrate", "--format", "json", "web", &destination]);
    assert!(end_of(receiver).status.success());
    there.wait_for_more("web");
    there.check_large("web");
    if let Some(report) = report(&said) {
        assert!(report["rounds"][0]["copied"].as_u64() > Some(50_000_000), "{report}");
    }
    wait_for("it has ended", || here.state("web").as_deref() == Some("ended (137)"));
}

#[test]
fn an_increment_goes_on_from_the_image_before() {
    let Some(place) = Place::new() else { return };
    let [first, second, third, elsewhere] =
        ["1.pod", "2.pod", "3.pod", "elsewhere"].map(|name| path(&place, name));
    large(&place, "web");
    let complaint = place.complains(&["checkpoint", "--incremental", "-o", &second, "web"]);
    assert!(complaint.contains("must be written with --track"), "{complaint}");
    place.says(&["checkpoint", "--track", "-o", &first, "web"]);
    for image in [&second, &third] {
        place.wait_for_more("web");
        place.says(&["checkpoint", "--incremental", "-o", image, "web"]);
    }
    let bytes = |path: &str| fs::metadata(path).expect("it is there").len();
    let sizes = [&first, &second, &third].map(|path| bytes(path));
    println!("{sizes:?} bytes");
    // The tracker is what makes them small.
    let is_tracked = sizes[1] < sizes[0] / 2;
    assert!(is_tracked || sizes[1] > sizes[0] / 10 * 9, "{sizes:?}");
    place.check_large("web");
    place.wait_for_more("web");
    place.says(&["rm", "-f", "web"]);
    place.says(&["restart", "-d", "--name", "web", &third]);
    place.check_large("web");
    place.wait_for_more("web");
    // Tracking ends with an image that is for itself, and with the pod.
    place.complains(&["checkpoint", "--incremental", "-f", "-o", &elsewhere, "web"]);
    place.says(&["checkpoint", "--track", "-o", &elsewhere, "web"]);
    place.says(&["checkpoint", "-f", "-o", &elsewhere, "web"]);
    place.complains(&["checkpoint", "--incremental", "-f", "-o", &elsewhere, "web"]);
    place.says(&["rm", "-f", "web"]);

    // A parent is found wherever the command line says, and nowhere else.
    let directory = path(&place, "parents");
    fs::create_dir(&directory).expect("there is room");
    let moved = format!("{directory}/any");
    fs::rename(&second, &moved).expect("the same file system");
    let restart = ["restart", "-d", "--name", "web"];
    let complaint = place.complains(&[&restart[..], &[&third]].concat());
    assert!(complaint.contains("the image that it goes on from is missing"), "{complaint}");
    place.says(&[&restart[..], &["--parent", &moved, &third]].concat());
    place.check_large("web");
    place.says(&["rm", "-f", "web"]);
    // Another image in its place is no parent.
    fs::rename(&elsewhere, &first).expect("the same file system");
    let complaint = place.complains(&[&restart[..], &["--parent", &moved, &third]].concat());
    assert!(complaint.contains("is missing"), "{complaint}");
    assert_eq!(place.left(), Vec::<String>::new());
}
