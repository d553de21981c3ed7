//! The life of a machine that is made over the socket.

use std::io::{Read, Write};

use rustix::process::Signal;
use serde_json::{Value, json};
use whole_machine::waiting::wait_for;

use super::place::{Place, next};

/// What the machines here run: it says one line, and sleeps.
const SCRIPT: &str = "echo up; echo careful >&2; sleep 1000";

/// Waits for an event of a domain.
#[track_caller]
fn wait_for_event(events: &mut impl std::io::BufRead, expected: &str) -> Value {
    let event = next(events);
    assert_eq!((&event["domain"], &event["event"]), (&json!("web"), &json!(expected)), "{event}");
    event
}

#[test]
fn a_machine_is_made_used_and_removed() {
    let place = Place::new();
    let mut events = place.begin("/v1/events");
    let job = place.create("web", SCRIPT);
    assert_eq!(job["state"], "done", "{job}");
    assert_eq!(job["result"], json!({ "domain": "web" }));
    for expected in ["created", "started", "running"] {
        wait_for_event(&mut events, expected);
    }
    let list = place.get("/v1/domains").json();
    assert_eq!((&list[0]["name"], &list[0]["state"]), (&json!("web"), &json!("running")));
    let details = place.get("/v1/domains/web").json();
    assert_eq!(details["record"]["spec"]["process"]["args"][2], SCRIPT);
    let statistics = place.get("/v1/domains/web/statistics").json();
    assert_eq!(statistics["memory"], 128 << 20);
    check_exec(&place);
    check_logs(&place);
    check_metrics(&place);
    place.done("POST", "/v1/domains/web/pause", "", 204);
    wait_for_event(&mut events, "paused");
    assert_eq!(place.state("web").as_deref(), Some("paused"));
    let refused = place.done("POST", "/v1/domains/web/snapshot", r#"{"file": "x"}"#, 400);
    assert!(refused.json()["error"].as_str().is_some_and(|it| it.contains("absolute")));
    place.done("POST", "/v1/domains/web/resume", "", 204);
    wait_for_event(&mut events, "running");
    check_snapshot(&place);
    place.done("DELETE", "/v1/domains/web", "", 409);
    place.done("POST", "/v1/domains/web/kill", "", 204);
    wait_for_event(&mut events, "ended");
    place.done("POST", "/v1/domains/web/kill", "", 409);
    let job = place.done("POST", "/v1/domains/web/start?wait=300", "", 200).json();
    assert_eq!(job["state"], "done", "{job}");
    wait_for_event(&mut events, "started");
    wait_for_event(&mut events, "running");
    let stop = place.done("POST", "/v1/domains/web/stop?wait=60", r#"{"time": 50}"#, 200).json();
    assert_eq!(stop["state"], "done", "{stop}");
    let ended = wait_for_event(&mut events, "ended");
    assert!(ended["status"].is_number(), "{ended}");
    place.done("DELETE", "/v1/domains/web", "", 204);
    wait_for_event(&mut events, "removed");
    place.done("GET", "/v1/domains/web", "", 404);
    assert_eq!(place.get("/v1/domains?all=true").json(), json!([]));
}

fn check_exec(place: &Place) {
    let run =
        |body: Value| place.done("POST", "/v1/domains/web/exec", &body.to_string(), 200).lines();
    let said = run(json!({
        "args": ["sh", "-c", "cat; echo $A; pwd; echo no >&2; exit 7"],
        "env": ["A=grün"], "directory": "/tmp", "input": "typed\n",
    }));
    let text = |stream: &str| -> String {
        let of = said.iter().filter(|line| line["stream"] == stream);
        of.filter_map(|line| line["log"].as_str()).collect()
    };
    assert_eq!(text("stdout"), "typed\ngrün\n/tmp\n");
    assert_eq!(text("stderr"), "no\n");
    assert_eq!(said.last(), Some(&json!({ "status": 7 })));
    let missing = run(json!({ "args": ["no-such-command"] }));
    assert_eq!(missing.last(), Some(&json!({ "status": 127 })));
    let bytes = run(json!({ "args": ["printf", "\\377"] }));
    assert_eq!(bytes[0], json!({ "stream": "stdout", "base64": "/w==" }));
    place.done("POST", "/v1/domains/web/exec", "{}", 400);
    place.done("POST", "/v1/domains/web/attach", "", 426);
    check_frames(place);
    // The command of a client that goes away does not stay.
    let mut stream = place.connect();
    let body = r#"{"args": ["sleep", "987"]}"#;
    let text = format!(
        "POST /v1/domains/web/exec HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(text.as_bytes()).expect("the server reads");
    let count = || {
        let said = run(json!({ "args": ["sh", "-c", "ps | grep -c '[s]leep 987'"] }));
        said[0]["log"].as_str().map(str::to_owned)
    };
    wait_for("the command runs", || count().as_deref() == Some("1\n"));
    drop(stream);
    wait_for("the command ends", || count().as_deref() == Some("0\n"));
}

/// A connection that becomes one of frames is greeted by the domain.
fn check_frames(place: &Place) {
    const GREETING: &[u8] = b"\x02BIVOUAC";
    let mut stream = place.connect();
    let text = "POST /v1/domains/web/exec HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\n\
                Upgrade: bivouac-frames\r\n\r\n";
    stream.write_all(text.as_bytes()).expect("the server reads");
    let (mut said, mut piece) = (Vec::new(), [0; 1024]);
    while !said.windows(GREETING.len()).any(|bytes| bytes == GREETING) {
        let count = stream.read(&mut piece).expect("the domain speaks");
        assert!(count > 0, "it hangs up after {:?}", String::from_utf8_lossy(&said));
        said.extend_from_slice(&piece[..count]);
    }
    assert!(said.starts_with(b"HTTP/1.1 101"), "{said:?}");
}

fn check_logs(place: &Place) {
    let lines = place.done("GET", "/v1/domains/web/logs", "", 200).lines();
    let said: Vec<_> = lines.iter().map(|line| (&line["stream"], &line["log"])).collect();
    let (out, err) = ((json!("stdout"), json!("up\n")), (json!("stderr"), json!("careful\n")));
    assert_eq!(said, [(&out.0, &out.1), (&err.0, &err.1)]);
    let tail = place.get("/v1/domains/web/logs?tail=1").lines();
    assert_eq!(tail, lines[1..]);
    assert_eq!(place.get("/v1/domains/web/logs?since=253402300799999").body, "");
    assert_eq!(place.get("/v1/domains/web/logs?until=0").body, "");
    place.done("GET", "/v1/domains/web/logs?since=now", "", 400);
    place.done("GET", "/v1/domains/web/logs?lines=1", "", 400);
}

fn check_metrics(place: &Place) {
    let text = place.done("GET", "/metrics", "", 200).body;
    let value = |name: &str| -> f64 {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or_else(|| panic!("{name} is not in {text}")).trim().parse().expect("a number")
    };
    assert_eq!(value("bivouac_domains{state=\"running\"}") as u64, 1);
    assert_eq!(value("bivouac_domain_memory_bytes{domain=\"web\"}") as u64, 128 << 20);
    assert!(value("bivouac_domain_memory_used_bytes{domain=\"web\"}") > 1e6);
    assert!(value("bivouac_domain_cpu_seconds_total{domain=\"web\"}") > 0.0);
    assert!(value("bivouac_domain_sessions_total{domain=\"web\"}") >= 1.0);
    assert!(value("process_start_time_seconds") > 1e9);
}

fn check_snapshot(place: &Place) {
    let file = place.path.join("web.snapshot");
    let body = json!({ "file": file }).to_string();
    let job = place.done("POST", "/v1/domains/web/snapshot", &body, 202).json();
    let job = place.get(&format!("/v1/jobs/{}?wait=300", job["id"])).json();
    assert_eq!(job["state"], "done", "{job}");
    let length = file.metadata().expect("it is there").len();
    assert_eq!(job["result"]["file"], length);
    // There is one now.
    let job = place.done("POST", "/v1/domains/web/snapshot?wait=300", &body, 200).json();
    assert_eq!(job["state"], "failed", "{job}");
    let jobs = place.get("/v1/jobs").json();
    assert_eq!(jobs.as_array().map(Vec::len), Some(3), "one has made the machine: {jobs}");
}

#[test]
fn a_machine_outlives_the_server() {
    let mut place = Place::new();
    place.create("web", SCRIPT);
    let mut log = place.begin("/v1/domains/web/logs?follow=true");
    assert_eq!(next(&mut log)["log"], "up\n");
    let ended = place.end(Signal::TERM);
    assert!(ended.status.success(), "{ended:?}");
    assert!(!place.socket().exists(), "the socket is left");
    assert_eq!(place.user.state("web").as_deref(), Some("running"));
    place.serve(&[]);
    assert_eq!(place.state("web").as_deref(), Some("running"));
    let mut log = place.begin("/v1/domains/web/logs?follow=true");
    assert_eq!(
        (next(&mut log)["log"].clone(), next(&mut log)["log"].clone()),
        (json!("up\n"), json!("careful\n"))
    );
    // What is not done over the socket is told as well.
    let mut events = place.begin("/v1/events");
    place.user.says(&["rm", "--force", "web"]);
    let mut rest = String::new();
    log.read_to_string(&mut rest).expect("the log ends with the domain");
    assert_eq!(rest, "");
    let told = [next(&mut events)["event"].clone(), next(&mut events)["event"].clone()];
    assert_eq!(told, ["ended", "removed"]);
}

#[test]
fn a_machine_that_cannot_be_made_says_why() {
    let place = Place::new();
    let check =
        |spec: &str, status: u16| place.done("POST", "/v1/domains?wait=300", spec, status).json();
    check("", 400);
    check("{", 400);
    check(r#"{"version": 99}"#, 400);
    let job = check(
        r#"{"version": 1, "boot": {"kernel": "/no/such/kernel"}, "process": {"args": ["true"]}}"#,
        200,
    );
    assert_eq!(job["state"], "failed", "{job}");
    assert!(job["error"].as_str().is_some_and(|error| error.contains("/no/such/kernel")), "{job}");
    let job = check(r#"{"version": 1, "machine": {"processors": 0}}"#, 200);
    assert!(job["error"].as_str().is_some_and(|error| error.contains("processor")), "{job}");
    assert_eq!(place.get("/v1/domains?all=true").json(), json!([]));
}
