//! Clients that make no sense, or too much of it.

use std::io::{Read, Write};

use serde_json::json;

use super::place::Place;

/// The server answers this with one of these statuses, or hangs up; and it is still there.
#[track_caller]
fn check(place: &Place, bytes: &[u8], statuses: &[u16]) {
    let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(60)]).into_owned();
    if let Ok(answer) = place.send(bytes) {
        assert!(statuses.contains(&answer.status), "{shown:?}: {answer:?}");
    }
    assert_eq!(place.get("/v1/ping").json()["api"], 1, "after {shown:?}");
}

#[test]
fn what_makes_no_sense_is_refused() {
    let place = Place::new();
    let text = |text: &str, statuses: &[u16]| check(&place, text.as_bytes(), statuses);
    text("\r\n\r\n\x16\x03\x01\x02\x00", &[400]);
    text("GET\r\n\r\n", &[400]);
    text("GET / HTTP/9.9\r\n\r\n", &[400, 505]);
    text("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", &[400, 404, 505]);
    text("GET /v1/ping HTTP/1.1\r\nContent-Length: -1\r\n\r\n", &[400]);
    text("GET /v1/ping HTTP/1.1\r\nTransfer-Encoding: x\r\nContent-Length: 1\r\n\r\n", &[400]);
    text(&format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(1 << 20)), &[400, 414, 431]);
    text(&format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(1000)), &[400, 431]);
    text(&format!("GET / HTTP/1.1\r\nA: {}\r\n\r\n", "b".repeat(1 << 20)), &[400, 431]);
    text("POST /v1/domains HTTP/1.0\r\nContent-Length: 99999999999999999999\r\n\r\n", &[400]);
    check(&place, &[0xff; 100_000], &[400, 431]);
}

#[test]
fn what_is_too_long_is_not_read() {
    let place = Place::new();
    let long = "x".repeat((4 << 20) + 1);
    let head = format!("POST /v1/domains HTTP/1.0\r\nContent-Length: {}\r\n\r\n", long.len());
    check(&place, (head + &long).as_bytes(), &[413]);
    let chunked = "POST /v1/domains HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\
                   Transfer-Encoding: chunked\r\n\r\n500000\r\n";
    check(&place, format!("{chunked}{}\r\n0\r\n\r\n", "x".repeat(0x50_0000)).as_bytes(), &[413]);
}

#[test]
fn paths_and_values_are_checked() {
    let place = Place::new();
    let check = |method: &str, path: &str, body: &str, status: u16| {
        let answer = place.done(method, path, body, status);
        assert!(answer.json()["error"].is_string(), "{answer:?}");
    };
    check("GET", "//", "", 404);
    check("GET", "/v1/domains/..", "", 404);
    check("GET", "/v1/domains/%2e%2e", "", 404);
    check("GET", "/v1/domains/.serve", "", 404);
    check("GET", "/v1/domains/../../etc/passwd", "", 404);
    check("GET", "/v1/domains/-a/logs", "", 404);
    check("DELETE", "/v1/domains", "", 405);
    check("PUT", "/v1/domains/web", "", 405);
    check("GET", "/v1/domains?all=perhaps", "", 400);
    check("GET", "/v1/domains?al=true", "", 400);
    check("GET", "/v1/jobs/99", "", 404);
    check("GET", "/v1/jobs/-1", "", 404);
    check("GET", "/v1/jobs/99999999999999999999999", "", 404);
    check("POST", "/v1/domains/web/exec", r#"{"args": ["ls"]}"#, 404);
    check("POST", "/v1/domains/web/exec", r#"{"args": ["a\u0000b"]}"#, 400);
    check("POST", "/v1/domains/web/exec", r#"{"args": "ls"}"#, 400);
    check("POST", "/v1/domains/web/kill", r#"{"signal": 65}"#, 400);
    check("POST", "/v1/domains/web/stop", "[", 400);
    check("POST", "/v1/domains/web/stop", &"[".repeat(100_000), 400);
}

#[test]
fn who_says_little_holds_up_nobody() {
    let place = Place::new();
    let mut silent: Vec<_> = (0..40).map(|_| place.connect()).collect();
    for stream in &mut silent {
        stream.write_all(b"POST /v1/domains HTTP/1.1\r\nContent-Length: 10\r\n").expect("it reads");
    }
    assert_eq!(place.get("/v1/domains").json(), json!([]));
    // There is an end to streams.
    let streams: Vec<_> = (0..48).map(|_| place.begin("/v1/events")).collect();
    place.done("GET", "/v1/events", "", 503);
    drop(streams);
    let again = || place.get("/v1/ping").status == 200;
    whole_machine::waiting::wait_for("there is room again", || {
        let mut stream = place.connect();
        stream.write_all(b"GET /v1/events HTTP/1.0\r\n\r\n").expect("it reads");
        let mut status = [0; 12];
        stream.read_exact(&mut status).expect("it answers");
        status.ends_with(b"200") && again()
    });
}

#[test]
fn the_document_is_served() {
    let place = Place::new();
    let document = place.get("/v1/openapi.json").json();
    assert!(document["paths"]["/v1/domains/{name}/exec"]["post"].is_object());
    let schema = place.get("/v1/spec.schema.json").json();
    assert_eq!(schema["title"], "A machine of Bivouac's");
}
