//! Several machines of a compose file: they start in their order, find each other, are made again when the file has
//! changed, and leave nothing behind.

#![forbid(unsafe_code)]

use std::fs;
use std::ops::Deref;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use whole_machine::text;
use whole_machine::user::User;
use whole_machine::waiting::wait_for;

/// Two services; GREETING is what the first one serves.
const FILE: &str = "
name: shop
services:
  web:
    command:
    - sh
    - -c
    - >-
      until wget -qO /tmp/page http://db/page; do sleep 0.2; done; cat /site/name >>/tmp/page;
      sleep 1000
    depends_on: [db]
    volumes: [./site:/site:ro, 'data:/data']
    x-biv: &small [--busybox, --mem=128M]
  db:
    command: sh -c 'echo $$GREETING >/tmp/page; exec httpd -f -p 80 -h /tmp'
    environment: {GREETING: '${GREETING:-hello}'}
    x-biv: *small
volumes: {data: }
";

/// A directory with a compose file, and a registry that disappears with all that is in it.
struct Place {
    path: PathBuf,
    user: User,
}

impl Place {
    fn new(file: &str) -> Place {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("biv-up-{}-{number}", std::process::id()));
        fs::create_dir_all(path.join("site")).expect("a directory");
        fs::write(path.join("site/name"), "site\n").expect("a file");
        fs::write(path.join("compose.yaml"), file).expect("a file");
        Place { user: User::new(&[], &path), path }
    }

    /// `biv VERB -f FILE`, and more.
    fn with<'a>(&'a self, verb: &'a str, file: &'a str, more: &[&'a str]) -> Vec<&'a str> {
        [&[verb, "-f", file][..], more].concat()
    }

    fn file(&self) -> String {
        self.path.join("compose.yaml").to_str().expect("text").to_owned()
    }

    /// What a machine has in a file, when it is there.
    #[track_caller]
    fn has(&self, name: &str, path: &str, expected: &str) {
        wait_for(&format!("{name} has {path}"), || {
            text(&self.output(&["exec", name, "cat", path]).stdout) == expected
        });
    }
}

impl Deref for Place {
    type Target = User;

    fn deref(&self) -> &User {
        &self.user
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.user.remove_domains(&self.path.join("bivouac"));
        let _ = fs::remove_dir_all(&self.path);
    }
}

#[test]
fn machines_of_a_file_find_each_other_and_go_together() {
    let place = Place::new(FILE);
    let file = place.file();
    let (up, down) = (place.with("up", &file, &[]), place.with("down", &file, &[]));
    assert_eq!(place.says(&up), "shop-db\nshop-web\n");
    place.has("shop-web", "/tmp/page", "hello\nsite\n");
    let (db, web) = (place.pid("shop-db"), place.pid("shop-web"));
    // Nothing has changed.
    assert_eq!(place.says(&up), "shop-db\nshop-web\n");
    assert_eq!((place.pid("shop-db"), place.pid("shop-web")), (db, web));
    // One that has ended starts again.
    place.says(&["stop", "shop-web"]);
    place.says(&up);
    assert_eq!(place.pid("shop-db"), db);
    place.has("shop-web", "/tmp/page", "hello\nsite\n");
    // What the file says of one has changed.
    let web = place.pid("shop-web");
    let output = place.command(&up).env("GREETING", "bye").output().expect("biv can be started");
    assert!(output.status.success(), "{output:?}");
    assert_ne!(place.pid("shop-db"), db);
    assert_eq!(place.pid("shop-web"), web);
    let asked = ["exec", "shop-web", "wget", "-qO-", "http://db/page"];
    wait_for("the new one answers", || text(&place.output(&asked).stdout) == "bye\n");
    assert!(place.complains(&["network", "rm", "shop"]).contains("shop-db"));
    assert_eq!(place.says(&down), "shop-db\nshop-web\nshop\n");
    assert_eq!(place.says(&["ps", "-a", "-q"]), "");
    let networks = place.says(&["network", "ls"]);
    assert_eq!(networks.lines().count(), 1, "{networks}");
    // There is nothing to do, which is no failure.
    assert_eq!(place.says(&down), "");
    assert_eq!(place.says(&["down", "-p", "shop"]), "");
}

/// A database that takes its time, a job, and who needs both.
const WAITING: &str = "
name: slow
services:
  web:
    command: sh -c 'echo started; sleep 1000'
    depends_on:
      db: {condition: service_healthy}
      job: {condition: service_completed_successfully}
    x-biv: &small [--busybox, --mem=128M]
    network_mode: none
  db:
    command: sh -c 'sleep 2; touch /tmp/up; sleep 1000'
    healthcheck: {test: '${TEST:-test -e /tmp/up}', interval: 300ms, timeout: 2s, retries: 30}
    x-biv: *small
    network_mode: none
  job:
    command: sh -c 'sleep 1; exit ${STATUS:-0}'
    x-biv: *small
    network_mode: none
";

#[test]
fn services_wait_for_what_they_need() {
    let place = Place::new(WAITING);
    let file = place.file();
    let up = place.with("up", &file, &[]);
    let output = place.output(&up);
    let said = text(&output.stderr);
    assert_eq!(text(&output.stdout), "slow-db\nslow-job\nslow-web\n", "{said}");
    assert_eq!(said, "biv: waiting until slow-db is healthy\n");
    place.says(&["exec", "slow-db", "test", "-e", "/tmp/up"]);
    assert_eq!(place.state("slow-job").as_deref(), Some("ended (0)"));
    assert_eq!(place.state("slow-web").as_deref(), Some("running"));
    place.says(&["down", "-p", "slow"]);
}

#[test]
fn services_do_not_start_without_what_they_need() {
    let place = Place::new(WAITING);
    let file = place.file();
    let up = place.with("up", &file, &[]);
    let refused = |name: &str, value: &str, expected: &str| {
        let output = place.command(&up).env(name, value).output().expect("biv can be started");
        let said = text(&output.stderr);
        assert!(!output.status.success() && said.contains(expected), "{name}={value}: {said}");
        assert_eq!(place.state("slow-web"), None);
        place.says(&["down", "-p", "slow"]);
    };
    refused("TEST", "exit 7", "service db is not healthy: its test ends: exit status: 7");
    refused("TEST", "sleep 100", "service db is not healthy: its test takes too long");
    refused("STATUS", "3", "service job has ended with status 3, and was to succeed first");
    let ended = WAITING.replace("sleep 2; touch /tmp/up; sleep 1000", "exit 0");
    fs::write(place.path.join("compose.yaml"), ended).expect("a file");
    refused("TEST", "false", "service db has ended, and was to be healthy first");
}

#[test]
fn a_file_is_shown_as_commands() {
    let place = Place::new(FILE);
    let file = place.file();
    let said = place.says(&place.with("up", &file, &["--dry-run", "-p", "test", "db"]));
    let expected = "biv run -d --name=test-db --label='bivouac.project=test' \
                    --label='bivouac.service=db' --network=test --network-alias=db \
                    --env='GREETING=hello' --busybox --mem=128M -- sh -c \
                    'echo $GREETING >/tmp/page; exec httpd -f -p 80 -h /tmp'\n";
    assert_eq!(said, expected);
    let said = place.says(&place.with("up", &file, &["--dry-run", "web"]));
    assert_eq!(said.lines().count(), 2, "{said}");
    assert_eq!(place.says(&["ps", "-a", "-q"]), "");
}

#[test]
fn what_is_no_project_is_refused_in_one_line() {
    let place = Place::new("services: {web: {imge: x}}");
    let file = place.file();
    let refused = |arguments: &[&str]| {
        let complaint = place.complains(arguments);
        assert_eq!(complaint.lines().count(), 1, "{complaint}");
        complaint
    };
    let unknown = refused(&place.with("up", &file, &[]));
    assert!(
        unknown.contains("compose.yaml: services.web") && unknown.contains("imge"),
        "{unknown}"
    );
    assert!(refused(&["up", "-f", "/nonexistent"]).contains("cannot read /nonexistent"));
    fs::write(place.path.join("compose.yaml"), FILE).expect("a file");
    assert!(refused(&place.with("up", &file, &["none"])).contains("there is no service none"));
    assert!(place.command(&["up"]).current_dir("/").output().is_ok_and(|it| !it.status.success()));
    // A machine of somebody else's is not touched.
    place.says(&[
        "run",
        "-d",
        "--name",
        "shop-db",
        "--busybox",
        "--mem=128M",
        "--",
        "sleep",
        "1000",
    ]);
    let pid = place.pid("shop-db");
    let taken = refused(&place.with("up", &file, &[]));
    assert!(taken.contains("shop-db is there already"), "{taken}");
    place.says(&place.with("down", &file, &[]));
    assert_eq!(place.pid("shop-db"), pid);
    place.says(&["rm", "-f", "shop-db"]);
}

#[test]
fn a_service_that_does_not_start_is_named() {
    let file = "name: broken\nservices:\n  a: {volumes: [./site:/site], network_mode: none, \
                command: 'true', x-biv: [--root, /nonexistent]}\n";
    let place = Place::new(file);
    let complaint = place.complains(&["up", "-f", &place.file()]);
    assert!(complaint.contains("/nonexistent"), "{complaint}");
    assert!(complaint.ends_with("biv: service a has not started\n"), "{complaint}");
    place.says(&["down", "-p", "broken"]);
    assert_eq!(place.says(&["ps", "-a", "-q"]), "");
}
