//! Databases that move while they are written to: nothing is lost, and nothing is done twice.

use whole_machine::text;

use crate::neighbours::client_that;
use crate::place::{Place, end_of, start};

use super::{Application, PATH, neighbourhood};

#[test]
fn redis_counts_while_it_moves() {
    let Some(place) = neighbourhood("redis-server") else { return };
    let options = "--bind 0.0.0.0 --protected-mode no --save '' --appendonly yes --io-threads 2";
    let script = format!("mkdir data; exec redis-server {options} --dir data");
    let mut redis = Application::start(&place, &script, &[]);
    redis.wait_until("redis-cli ping");
    let client = client_that(&place, "near", &["increment", "web0:6379", "4"]);
    for step in 0..3 {
        // The last one may go on yet.
        redis.wait_until("redis-cli bgrewriteaof");
        if step == 1 {
            redis.restart()
        } else {
            redis.move_on()
        }
        redis.wait_until("redis-cli ping");
    }
    let answered = client.check();
    let count = redis.exec("redis-cli get pods");
    assert_eq!(count, format!("{answered}\n"));
    // Another one that reads the files of this one agrees.
    redis.exec(&format!(
        "cp -r data again; redis-server --port 6380 --daemonize yes {options} --dir again"
    ));
    redis.wait_until("redis-cli -p 6380 ping | grep -q PONG");
    assert_eq!(redis.exec("redis-cli -p 6380 get pods"), count);
}

/// A server of PostgreSQL, and pgbench in the pod beside it, again and again, until somebody has had enough.
const SERVER: &str = "
bin=$(echo /usr/lib/postgresql/*/bin)
as='setpriv --reuid=65534 --regid=65534 --clear-groups'
mkdir data; chown 65534:65534 data
$as $bin/initdb -D data -A trust -U postgres --locale=C -E UTF8 --no-sync >/dev/null || exit 1
echo host all all 0.0.0.0/0 trust >>data/pg_hba.conf
exec $as $bin/postgres -D data -h '*' -k /tmp/data -c shared_buffers=16MB
";

/// Transactions of each client in each run.
const TRANSACTIONS: u64 = 100;
const CLIENTS: u64 = 4;

#[test]
fn postgresql_loses_nothing_while_it_moves() {
    let Some(place) = neighbourhood("/usr/lib/postgresql/*/bin/pgbench") else { return };
    if users(&place) == 1 {
        println!("skipped: PostgreSQL does not run as the only user that there is");
        return;
    }
    let mut server = Application::start(&place, SERVER, &[]);
    let run = "$(echo /usr/lib/postgresql/*/bin)";
    server.wait_until(&format!("{run}/psql -h 127.0.0.1 -U postgres -c 'select 1' postgres"));
    let address = crate::neighbours::address(&place, "web0");
    let connect = format!("-h {address} -U postgres");
    place.exec("near", &format!("{run}/pgbench {connect} -i -q -s 2 postgres 2>&1"));
    let bench = format!(
        "{PATH}; while ! [ -e enough ]; do {run}/pgbench {connect} -n -c {CLIENTS} -j 2 \
         -t {TRANSACTIONS} postgres || exit 1; done"
    );
    let bench = start(place.command(&["exec", "near", "sh", "-c", &bench]));
    let ask = |question: &str| {
        let ask = format!("{run}/psql {connect} -qAt -c '{question}' postgres");
        place.exec("near", &ask).trim_end().parse::<i64>().expect("a number")
    };
    for step in 0..3 {
        let before = ask("select count(*) from pgbench_history");
        if step == 1 {
            server.restart()
        } else {
            server.move_on()
        }
        let goes_on = || ask("select count(*) from pgbench_history") > before + 100;
        whole_machine::waiting::wait_for("it goes on", goes_on);
    }
    place.exec("near", "touch /tmp/enough");
    let output = end_of(bench);
    assert!(output.status.success(), "{output:?}");
    let said = text(&output.stdout);
    let count = |line: &str| said.lines().filter(|it| it.starts_with(line)).count() as u64;
    let runs = count("number of failed transactions: 0 ");
    println!("{runs} runs");
    assert!(runs > 0 && runs == count("transaction type"), "{said}");
    // What was answered is there, and was done once.
    let transactions = (runs * CLIENTS * TRANSACTIONS) as i64;
    assert_eq!(ask("select count(*) from pgbench_history"), transactions);
    let sum = ask("select sum(delta) from pgbench_history");
    for table in ["accounts", "branches", "tellers"] {
        let column = &table[..1];
        assert_eq!(ask(&format!("select sum({column}balance) from pgbench_{table}")), sum);
    }
}

/// How many users a pod has.
fn users(place: &Place) -> u64 {
    let map = place.exec("near", "cat /proc/self/uid_map");
    let count = |line: &str| line.split_ascii_whitespace().nth(2)?.parse::<u64>().ok();
    map.lines().filter_map(count).sum()
}
