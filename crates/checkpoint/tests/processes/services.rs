//! Services that everybody knows, with a client that keeps its connection while both are moved.

use std::fs;
use std::process::{Command, Stdio};

use crate::support::{Directory, Network, Subject, compile};

fn check(name: &str, command: &str, request: &str, reply: &str) {
    let mut version = Command::new(name);
    version.arg("-v").stdout(Stdio::null()).stderr(Stdio::null());
    if !version.status().is_ok_and(|status| status.success()) {
        println!("skipped: there is no {name}");
        return;
    }
    let directory = Directory::new(name);
    let Some(program) = compile(&directory, "service") else { return };
    let place = directory.path("place");
    fs::create_dir(&place).expect("there is room");
    for (file, text) in [("command", command), ("request", request), ("reply", reply)] {
        fs::write(place.join(file), text).expect("there is room");
    }
    let Some(mut subject) = Subject::start_in(Network::Own, &directory, &program) else { return };
    subject.check();
    subject.check_dumps(1);
    for _ in 0..3 {
        subject.transplant();
        subject.check();
    }
}

/// With one process, or with a master and workers, whom it tells by signals about input.
fn check_nginx(processes: &str) {
    let configuration = format!(
        "user root; daemon off; {processes}; pid nginx.pid; error_log stderr; \
        events {{ worker_connections 16; }} http {{ access_log off; client_body_temp_path a; \
        proxy_temp_path b; fastcgi_temp_path c; uwsgi_temp_path d; scgi_temp_path e; \
        server {{ listen 8080; location / {{ return 200 moved; }} }} }}"
    );
    let command = format!(
        "echo '{configuration}' >configuration; \
         exec nginx -p . -c configuration </dev/null >/dev/null 2>&1"
    );
    let request = "GET / HTTP/1.1\r\nHost: here\r\n\r\n";
    check("nginx", &command, request, "HTTP/1.1 200 OK\r\n");
}

#[test]
fn nginx_answers_over_the_connection_that_it_had() {
    check_nginx("master_process off");
    check_nginx("worker_processes 2");
}

#[test]
fn redis_has_what_it_was_told() {
    let command = "exec redis-server --port 8080 --bind 127.0.0.1 --save '' --appendonly no \
        </dev/null >/dev/null 2>&1";
    let request = "*3\r\n$3\r\nSET\r\n$1\r\na\r\n$3\r\nhay\r\n*2\r\n$3\r\nGET\r\n$1\r\na\r\n";
    check("redis-server", command, request, "+OK\r\n$3\r\nhay\r\n");
}
