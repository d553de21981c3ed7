//! nginx with one worker answers wrk with 16 connections over the loopback interface: a small file.

use crate::number::{Number, Program, Unit, Work};

/// See the head of this file.
pub const NUMBER: Number = Number {
    name: "nginx",
    title: "nginx and wrk",
    unit: Unit::REQUESTS,
    work: Work::Program(Program {
        needs: &["nginx", "wrk"],
        prepare: PREPARE,
        run: RUN,
        processors: 1,
    }),
};

/// A server with a small file.
pub const PREPARE: &str = r#"
mkdir -p /tmp/nginx/www
head -c 600 /dev/zero | tr '\0' x >/tmp/nginx/www/index.html
cat >/tmp/nginx/conf <<END
user root;
worker_processes 1;
pid /tmp/nginx/pid;
error_log /tmp/nginx/error;
events { worker_connections 256; }
http {
    access_log off;
    keepalive_requests 100000000;
    client_body_temp_path /tmp/nginx/1;
    proxy_temp_path /tmp/nginx/2;
    fastcgi_temp_path /tmp/nginx/3;
    uwsgi_temp_path /tmp/nginx/4;
    scgi_temp_path /tmp/nginx/5;
    server { listen 127.0.0.1:8080; root /tmp/nginx/www; }
}
END
nginx -c /tmp/nginx/conf -e /tmp/nginx/error </dev/null >/dev/null 2>&1
"#;

/// Requests for some seconds.
pub const RUN: &str = r#"
seconds=5
[ "$bench_scale" -ge 100 ] || seconds=2
wrk -t1 -c16 -d$seconds http://127.0.0.1:8080/ >/tmp/nginx/wrk
kill "$(cat /tmp/nginx/pid)"
if grep -E 'Non-2xx|Socket errors' /tmp/nginx/wrk; then exit 1; fi
awk '/^Requests.sec:/ { printf "rate %.1f\n", $2 }' /tmp/nginx/wrk
"#;
