//! The API's answers against its own OpenAPI document, and requests that make no sense.

use api::Ended;
use api::http::{self, FRAMES, Request, Response};
use api::record::{Record, VERSION};
use api::v1::{self, Answer, Balloon, Domain, Inspection, Processor, Refusal, State, Statistics};
use serde_json::{Value, json};

/// A domain that does as it is told, and says no when it is to.
#[derive(Default)]
struct Fake {
    refuses: bool,
    ended: bool,
    paused: bool,
    killed: Option<Option<u8>>,
    memory: Option<u64>,
    stopped: bool,
}

impl Fake {
    fn unless_refused(&self) -> Result<(), Refusal> {
        if self.refuses { Err((503, "not now".to_owned())) } else { Ok(()) }
    }
}

impl Domain for Fake {
    fn inspect(&self) -> Inspection {
        let ending = Ended { at: 1, status: 3, error: Some("why".to_owned()), reason: None };
        Inspection {
            record: Record {
                version: VERSION,
                name: "web".parse().unwrap(),
                pid: 42,
                created: 1_700_000_000_000,
                detached: true,
                kept: false,
                command: vec!["--".to_owned(), "true".to_owned()],
                has_init: true,
                has_terminal: false,
                memory: 1 << 30,
                processors: 2,
                kernel: "/vmlinuz".to_owned(),
                spec: Box::default(),
                ending: self.ended.then_some(ending),
            },
            state: if self.paused { State::Paused } else { State::Running },
            commands: 1,
            watchers: 2,
            terminals: 0,
            messages: "said".to_owned(),
        }
    }

    fn statistics(&self) -> Result<Statistics, Refusal> {
        self.unless_refused()?;
        let processors = vec![Processor { exits: 1, interrupts: 2, halts: 3 }; 2];
        let balloon = self.paused.then(|| Balloon { guest_free: Some(7), ..Balloon::default() });
        Ok(Statistics {
            memory: 1 << 30,
            memory_used: 1 << 20,
            balloon,
            processors,
            sessions: 4,
            read_bytes: 0,
            written_bytes: 0,
        })
    }

    fn stop(&mut self) -> Result<(), Refusal> {
        self.stopped = true;
        self.unless_refused()
    }

    fn kill(&mut self, signal: Option<u8>) -> Result<(), Refusal> {
        self.killed = Some(signal);
        self.unless_refused()
    }

    fn balloon(&mut self, memory: u64) -> Result<(), Refusal> {
        self.memory = Some(memory);
        self.unless_refused()
    }

    fn pause(&mut self, paused: bool) -> Result<(), Refusal> {
        self.paused = paused;
        self.unless_refused()
    }

    fn allows_snapshots(&self) -> Result<(), Refusal> {
        self.unless_refused()
    }

    fn takes_commands(&self) -> Result<(), Refusal> {
        self.unless_refused()
    }

    fn takes_terminals(&self) -> Result<(), Refusal> {
        self.unless_refused()
    }

    fn takes_watchers(&self) -> Result<(), Refusal> {
        self.unless_refused()
    }
}

fn request(method: &str, path: &str, body: &str) -> Request {
    let (method, path) = (method.to_owned(), path.to_owned());
    Request { method, path, upgrade: None, body: body.as_bytes().to_vec() }
}

fn ask(method: &str, path: &str, body: &str, domain: &mut Fake) -> Response {
    match v1::answer(&request(method, path, body), domain) {
        Answer::Response(response) => response,
        other => panic!("{other:?}"),
    }
}

/// Says how `value` is not what `schema` describes, with no more in it than that.
fn mismatch(document: &Value, schema: &Value, value: &Value, at: &str) -> Option<String> {
    if let Some(reference) = schema["$ref"].as_str() {
        let schema = document.pointer(reference.trim_start_matches('#')).expect("a definition");
        return mismatch(document, schema, value, at);
    }
    if let Some(choices) = schema["oneOf"].as_array() {
        let fits = choices.iter().any(|one| mismatch(document, one, value, at).is_none());
        return (!fits).then(|| format!("{at} fits none of its choices: {value}"));
    }
    if let Some(values) = schema["enum"].as_array()
        && !values.contains(value)
    {
        return Some(format!("{at} is {value}"));
    }
    let kinds = match &schema["type"] {
        Value::String(kind) => vec![kind.as_str()],
        Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).collect(),
        other => return Some(format!("{at} has no type: {other}")),
    };
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_u64() || number.is_i64() => "integer",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    if !kinds.contains(&kind) {
        return Some(format!("{at} is {kind}, not {kinds:?}"));
    }
    match value {
        Value::Array(items) => items
            .iter()
            .enumerate()
            .find_map(|(n, item)| mismatch(document, &schema["items"], item, &format!("{at}/{n}"))),
        // A machine's description has a schema of its own (docs/spec.schema.json).
        Value::Object(fields) if at.ends_with("/record/spec") => {
            (fields["version"] != 1).then(|| format!("{at} has another version"))
        }
        Value::Object(fields) => {
            let known = schema["properties"].as_object().expect("objects have properties");
            let required = schema["required"].as_array().cloned().unwrap_or_default();
            let missing = required.iter().find(|name| fields.get(name.as_str().unwrap()).is_none());
            let missing = missing.map(|name| format!("{at} has no {name}"));
            missing.or_else(|| {
                fields.iter().find_map(|(name, field)| match known.get(name) {
                    Some(schema) => mismatch(document, schema, field, &format!("{at}/{name}")),
                    None => Some(format!("{at} has {name}, which nobody describes")),
                })
            })
        }
        _ => None,
    }
}

/// The document, as whoever asks gets it.
fn document() -> Value {
    let response = ask("GET", "/v1/openapi.json", "", &mut Fake::default());
    assert_eq!(response.status, 200);
    serde_json::from_slice(&response.body).unwrap()
}

#[track_caller]
fn check(document: &Value, method: &str, path: &str, response: &Response) {
    let operation = &document["paths"][path][method.to_ascii_lowercase()];
    let described = &operation["responses"][response.status.to_string()];
    assert!(described.is_object(), "{method} {path}: nobody describes status {}", response.status);
    let schema = &described["content"]["application/json"]["schema"];
    let body: Value = serde_json::from_slice(&response.body).unwrap();
    assert_eq!(mismatch(document, schema, &body, path), None);
}

const CALLS: [(&str, &str, &str); 8] = [
    ("GET", "/v1/domain", ""),
    ("GET", "/v1/domain/statistics", ""),
    ("POST", "/v1/domain/stop", ""),
    ("POST", "/v1/domain/kill", ""),
    ("POST", "/v1/domain/kill", r#"{"signal":15}"#),
    ("PUT", "/v1/domain/balloon", r#"{"memory":1048576}"#),
    ("POST", "/v1/domain/pause", ""),
    ("POST", "/v1/domain/resume", ""),
];

/// What a connection can become.
const CONNECTIONS: [&str; 3] = ["/v1/domain/exec", "/v1/domain/attach", "/v1/domain/console"];

#[test]
fn answers_are_as_the_document_describes_them() {
    let document = document();
    for (method, path, body) in CALLS {
        for (ended, refuses) in [(false, false), (true, false), (false, true)] {
            let mut domain = Fake { ended, refuses, paused: ended, ..Fake::default() };
            check(&document, method, path, &ask(method, path, body, &mut domain));
        }
    }
    for path in CONNECTIONS {
        check(&document, "POST", path, &ask("POST", path, "", &mut Fake::default()));
    }
    let wrong = ask("POST", "/v1/domain/kill", r#"{"signal":0}"#, &mut Fake::default());
    check(&document, "POST", "/v1/domain/kill", &wrong);
}

#[test]
fn the_document_describes_every_path() {
    let document = document();
    assert!(document["openapi"].as_str().is_some_and(|version| version.starts_with("3.")));
    let paths: Vec<&String> = document["paths"].as_object().unwrap().keys().collect();
    for (method, path, _) in CALLS {
        assert!(paths.iter().any(|known| *known == path), "{path} is not described");
        let other = if method == "GET" { "PUT" } else { "GET" };
        assert_eq!(ask(other, path, "", &mut Fake::default()).status, 405, "{other} {path}");
    }
    for path in &paths {
        assert_ne!(ask("PATCH", path, "", &mut Fake::default()).status, 404, "{path} is not there");
    }
}

#[test]
fn a_mismatch_would_be_found() {
    let document = document();
    let schema = json!({ "$ref": "#/components/schemas/Problem" });
    let check = |value: Value, fits: bool| {
        assert_eq!(mismatch(&document, &schema, &value, "it").is_none(), fits, "{value}");
    };
    check(json!({ "error": "x" }), true);
    check(json!({ "error": 1 }), false);
    check(json!({}), false);
    check(json!({ "error": "x", "more": 1 }), false);
    check(json!([]), false);
}

#[test]
fn what_is_asked_is_done() {
    let mut domain = Fake::default();
    ask("POST", "/v1/domain/kill", r#"{"signal":15}"#, &mut domain);
    assert_eq!(domain.killed, Some(Some(15)));
    ask("POST", "/v1/domain/kill", "{}", &mut domain);
    assert_eq!(domain.killed, Some(None));
    ask("PUT", "/v1/domain/balloon", r#"{"memory":4096}"#, &mut domain);
    assert_eq!(domain.memory, Some(4096));
    ask("POST", "/v1/domain/pause", "", &mut domain);
    assert!(domain.paused);
    ask("POST", "/v1/domain/resume", "", &mut domain);
    assert!(!domain.paused);
    ask("POST", "/v1/domain/stop", "", &mut domain);
    assert!(domain.stopped);
}

#[test]
fn what_makes_no_sense_is_refused_and_not_done() {
    let mut domain = Fake::default();
    let mut check = |method: &str, path: &str, body: &str, status: u16| {
        assert_eq!(ask(method, path, body, &mut domain).status, status, "{method} {path} {body}");
    };
    check("GET", "/", "", 404);
    check("GET", "/v1/domain/../domain", "", 404);
    check("GET", "/v1/domain/", "", 404);
    check("DELETE", "/v1/domain", "", 405);
    check("GET", "/v1/domain/kill", "", 405);
    check("POST", "/v1/domain/kill", "{", 400);
    check("POST", "/v1/domain/kill", r#"{"signal":"TERM"}"#, 400);
    check("POST", "/v1/domain/kill", r#"{"signal":65}"#, 400);
    check("POST", "/v1/domain/kill", r#"{"signal":-1}"#, 400);
    check("POST", "/v1/domain/kill", r#"{"sginal":9}"#, 400);
    check("POST", "/v1/domain/kill", &"[".repeat(100_000), 400);
    check("POST", "/v1/domain/exec", "", 426);
    check("PUT", "/v1/domain/balloon", "", 400);
    check("PUT", "/v1/domain/balloon", r#"{"memory":-1}"#, 400);
    check("POST", "/v1/domain/balloon", r#"{"memory":1}"#, 405);
    assert!(domain.killed.is_none(), "{:?}", domain.killed);
}

/// A generator for hostile bytes (xorshift64*), so that a failure can be repeated.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % end
    }
}

#[test]
fn hostile_requests_are_answered_or_refused() {
    const PARTS: [&[u8]; 14] = [
        b"GET ",
        b"POST ",
        b"/v1/domain",
        b"/kill",
        b"/exec",
        b" HTTP/1.1\r\n",
        b"Content-Length: 12\r\n",
        b"Upgrade: bivouac-frames\r\n",
        b"Transfer-Encoding: chunked\r\n",
        b"\r\n",
        b"{\"signal\":15}",
        b"\xff\x00",
        b": ",
        b"\n",
    ];
    let (mut random, mut domain, mut answered) = (Random(0x1bad_b002), Fake::default(), 0);
    for _ in 0..50_000 {
        let mut bytes: Vec<u8> = match random.below(2) {
            0 => b"POST /v1/domain/kill HTTP/1.1\r\nContent-Length: 13\r\n\r\n{\"signal\":15}"
                .to_vec(),
            _ => (0..random.below(12))
                .flat_map(|_| PARTS[random.below(PARTS.len())])
                .copied()
                .collect(),
        };
        for _ in 0..random.below(4) {
            if !bytes.is_empty() {
                let at = random.below(bytes.len());
                bytes[at] = random.below(256) as u8;
            }
        }
        match http::parse(&bytes) {
            Ok(Some((request, length))) => {
                assert!(length <= bytes.len());
                if let Answer::Response(response) = v1::answer(&request, &mut domain) {
                    assert!((200..=503).contains(&response.status));
                    answered += 1;
                }
            }
            Ok(None) => {}
            Err(error) => assert!((400..500).contains(&error.status())),
        }
    }
    assert!(answered > 5_000, "only {answered} were requests");
}

#[test]
fn connections_become_something_else_if_they_ask_for_it() {
    let upgrade = |path: &str, upgrade: &str, domain: &mut Fake| {
        let request = Request { upgrade: Some(upgrade.to_owned()), ..request("POST", path, "") };
        v1::answer(&request, domain)
    };
    let status = |answer| match answer {
        Answer::Response(response) => response.status,
        other => panic!("{other:?}"),
    };
    let busy = &mut Fake { refuses: true, ..Fake::default() };
    for (path, expected) in CONNECTIONS.iter().zip([Answer::Frames, Answer::Watch, Answer::Console])
    {
        assert_eq!(upgrade(path, FRAMES, &mut Fake::default()), expected);
        assert_eq!(status(upgrade(path, "websocket", &mut Fake::default())), 426);
        assert_eq!(status(upgrade(path, FRAMES, busy)), 503);
    }
}
