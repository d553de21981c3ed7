//! Servers that are asked all the time, over connections that stay: each question is answered, once.

use std::fs;
use std::process::Command;

use crate::neighbours::client_that;

use super::{Application, neighbourhood};

/// Connections of its client.
const CONNECTIONS: &str = "8";

/// What is done with a server, in this order.
enum Step {
    Move,
    Restart,
}

/// Has a server, started by a script, move and be restarted while it is asked. Whatever else it does goes on: it says
/// something of each kind again and again.
fn check(program: &str, script: &str, files: &[(&str, &[u8])], kinds: &[&str]) {
    let Some(place) = neighbourhood(program) else { return };
    let mut server = Application::start(&place, script, files);
    server.wait_until("./pod-probe get 127.0.0.1:80 1 </dev/null");
    let client = client_that(&place, "near", &["get", "web0:80", CONNECTIONS]);
    server.wait_for_each(kinds);
    for step in [Step::Move, Step::Restart, Step::Move] {
        match step {
            Step::Move => server.move_on(),
            Step::Restart => server.restart(),
        }
        server.wait_for_each(kinds);
    }
    client.check();
    // It takes new ones.
    let ask = format!("/tmp/pod-probe get {}:80 1 </dev/null", server.name());
    let said = place.exec("near", &ask);
    assert!(said.contains("\nanswered "), "{said}");
}

const NGINX: &str = "
daemon off;
user root;
worker_processes 2;
pid /tmp/pid;
error_log stderr;
events { worker_connections 256; }
http {
    access_log off;
    keepalive_requests 100000000;
    keepalive_timeout 1000s;
    client_body_temp_path /tmp/1;
    proxy_temp_path /tmp/2;
    fastcgi_temp_path /tmp/3;
    uwsgi_temp_path /tmp/4;
    scgi_temp_path /tmp/5;
    server { listen 80; root /tmp/www; }
}
";

#[test]
fn nginx_answers_while_it_moves() {
    let script = "mkdir www; echo A page. >www/index.html; exec nginx -c /tmp/conf -e stderr";
    check("nginx", script, &[("conf", NGINX.as_bytes())], &[]);
}

#[test]
fn python_answers_while_it_moves() {
    let program = include_bytes!("server.py");
    check("python3", "exec python3 server.py", &[("server.py", program)], &["loop", "child"]);
}

#[test]
fn node_answers_while_it_moves() {
    let (program, kinds) = (include_bytes!("server.js"), ["timer", "first", "second"]);
    check("node", "exec node server.js", &[("server.js", program)], &kinds);
}

#[test]
fn java_answers_while_it_moves() {
    let program = include_bytes!("Server.java");
    let script = "exec java -Xmx128m Server.java";
    check("javac", script, &[("Server.java", program)], &["timer", "garbage"]);
}

#[test]
fn go_answers_while_it_moves() {
    let Some(place) = neighbourhood("go") else { return };
    let source = place.path.join("server.go");
    fs::write(&source, include_bytes!("server.go")).expect("there is room");
    let path = std::env::var("PATH").unwrap_or_default();
    let mut command = Command::new("go");
    command.args(["build", "-o", "server", "server.go"]).current_dir(&place.path);
    command.env("PATH", format!("{path}:/usr/local/go/bin")).env("GO111MODULE", "off");
    command.env("GOCACHE", place.path.join("cache")).env("GOTELEMETRY", "off");
    let output = command.output().expect("pods have it, and so has the host");
    assert!(output.status.success(), "{output:?}");
    let program = fs::read(place.path.join("server")).expect("it is built");
    let script = "chmod 755 server; exec ./server";
    check("go", script, &[("server", &program)], &["turns", "ticks", "garbage"]);
}
