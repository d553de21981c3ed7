//! The page for browsers: who is answered at its port, and what a browser makes of it.

use std::io::{BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};

use whole_machine::text;

use super::place::{Place, head};

/// How long a browser pretends that it has looked at the page, in milliseconds.
const LOOKING: &str = "--virtual-time-budget=9000";

/// Address and token of the page.
fn parts(url: &str) -> (&str, &str) {
    let rest = url.strip_prefix("http://").expect("it is an address");
    rest.split_once("/#").expect("it has a token")
}

/// Status and text of an answer.
#[track_caller]
fn ask(address: &str, path: &str, headers: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).expect("the server listens");
    let request = format!("GET {path} HTTP/1.0\r\n{headers}\r\n");
    stream.write_all(request.as_bytes()).expect("the server reads");
    let mut whole = Vec::new();
    stream.read_to_end(&mut whole).expect("it answers");
    let status = head(&mut BufReader::new(&whole[..])).expect("it answers");
    (status, text(&whole))
}

#[test]
fn only_a_browser_with_the_token_is_answered() {
    let mut place = Place::empty();
    place.serve(&["--web"]);
    let url = place.printed();
    let (address, token) = parts(&url);
    assert!(address.starts_with("127.0.0.1:"), "{url}");
    let host = format!("Host: {address}\r\n");
    let bearer = format!("{host}Authorization: Bearer {token}\r\n");
    let check = |path: &str, headers: &str, expected: u16| {
        let (status, answer) = ask(address, path, headers);
        assert_eq!(status, expected, "{path} {headers}: {answer}");
        let foreign = answer.to_lowercase().contains("access-control-allow");
        assert!(!foreign, "other pages may read it: {answer}");
        answer
    };
    check("/v1/domains", &bearer, 200);
    check("/v1/domains", &host, 401);
    check("/metrics", &host, 401);
    check(&format!("/v1/domains?token={token}"), &host, 401);
    check("/v1/domains", &format!("{host}Authorization: Bearer 00\r\n"), 401);
    check("/v1/domains", &bearer.replace("127.0.0.1", "evil.example"), 403);
    check("/", "", 403);
    let page = check("/", &host, 200);
    for header in ["content-security-policy: default-src 'none'", "x-frame-options: DENY"] {
        assert!(page.contains(header), "{header} is not in {page}");
    }
    assert!(!page.contains(token) && !page.contains("{nonce}"), "{page}");
    let reason = place.user.complains(&["serve", "--socket", "x", "--web", "0.0.0.0:0"]);
    assert!(reason.contains("this host only"), "{reason}");
}

#[test]
fn a_browser_shows_domains() {
    if Command::new("chromium").arg("--version").stdout(Stdio::null()).status().is_err() {
        println!("left out: there is no chromium here");
        return;
    }
    let mut place = Place::empty();
    place.serve(&["--web"]);
    let url = place.printed();
    place.create("web", "echo 'said <b>boldly</b>'; sleep 1000");
    let profile = format!("--user-data-dir={}", place.path.join("browser").display());
    let mut browser = Command::new("timeout");
    browser.args(["--kill-after=5", "200", "chromium", "--headless", "--no-sandbox"]);
    browser.args(["--disable-gpu", "--disable-dev-shm-usage", &profile, LOOKING, "--dump-dom"]);
    browser.arg(&url).env("HOME", &place.path).stdin(Stdio::null());
    let output = browser.output().expect("timeout can be started");
    let page = text(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    for shown in [
        "<td>web</td>",
        "<td title=\"\">running</td>",
        "<h2 id=\"title\">web</h2>",
        "<span class=\"stdout\">said &lt;b&gt;boldly&lt;/b&gt;\n</span>",
        "<button>pause</button>",
        "<div id=\"problem\" role=\"alert\"></div>",
    ] {
        assert!(page.contains(shown), "{shown} is not in {page}");
    }
    // Two samples at least, of each graph.
    let graphs = page.matches("points=\"").count();
    let lines = page.split("points=\"").skip(1).filter_map(|rest| rest.split('"').next());
    let long = lines.filter(|points| points.split(' ').count() >= 2).count();
    assert_eq!((graphs, long), (2, 2), "{page}");
    // Without the token in the address, there is nothing to see.
    let (address, _) = parts(&url);
    let bare = format!("http://{address}/");
    let mut arguments: Vec<_> = browser.get_args().map(ToOwned::to_owned).collect();
    *arguments.last_mut().expect("it has some") = bare.into();
    let mut browser = Command::new("timeout");
    browser.args(&arguments).env("HOME", place.path.join("other")).stdin(Stdio::null());
    browser.arg(format!("--user-data-dir={}", place.path.join("other").display()));
    let page = text(&browser.output().expect("timeout can be started").stdout);
    assert!(page.contains("must have the token") && !page.contains("<td>web</td>"), "{page}");
}
