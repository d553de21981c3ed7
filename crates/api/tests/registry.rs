//! The registry of domains: names, locks, what is left of those that have ended.

use std::fs;
use std::path::PathBuf;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use api::admission::{Demand, Limits};
use api::record::{self, Record};
use api::registry::{Claim, Error};
use api::{Kept, Name, Registry, files};

/// A registry in a directory that disappears.
struct Place {
    path: PathBuf,
}

impl Place {
    fn new() -> Place {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path =
            std::env::temp_dir().join(format!("biv-registry-{}-{number}", std::process::id()));
        Place { path }
    }

    fn registry(&self) -> Registry {
        Registry::at(&self.path).unwrap()
    }

    fn names(&self) -> Vec<String> {
        self.registry().list().unwrap().iter().map(|entry| entry.name.to_string()).collect()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

fn name(text: &str) -> Name {
    text.parse().unwrap()
}

/// Writes the record of a domain that is kept, or not.
fn write_record(claim: &Claim, kept: bool) {
    let record = Record {
        version: record::VERSION,
        name: claim.name.clone(),
        pid: 1,
        created: record::now(),
        detached: true,
        kept,
        command: Vec::new(),
        has_init: true,
        has_terminal: false,
        memory: 1 << 30,
        processors: 2,
        kernel: String::new(),
        spec: Box::default(),
        ending: None,
    };
    let file = files::create(&claim.directory, files::RECORD).unwrap();
    record.write(&file.into()).unwrap();
}

#[test]
fn a_name_is_taken_once() {
    let place = Place::new();
    let claim = place.registry().claim(Some(&name("web")), None).unwrap();
    write_record(&claim, true);
    let again = place.registry().claim(Some(&name("web")), None);
    assert!(matches!(again, Err(Error::Running(..))), "{again:?}");
    assert!(matches!(place.registry().remove(&name("web")), Err(Error::Alive(..))));
    drop(claim);
    let ended = place.registry().claim(Some(&name("web")), None);
    assert!(matches!(ended, Err(Error::Ended(..))), "{ended:?}");
    place.registry().remove(&name("web")).unwrap();
    assert!(matches!(place.registry().find("web"), Err(Error::Unknown(..))));
    place.registry().claim(Some(&name("web")), None).unwrap();
}

/// Hundreds that begin in one moment have the lock one after another.
#[test]
fn whoever_has_to_wait_for_the_others_does() {
    let place = Place::new();
    drop(place.registry());
    let lock = fs::File::create(place.path.join(".lock")).unwrap();
    lock.lock().unwrap();
    std::thread::scope(|scope| {
        let claim = scope.spawn(|| place.registry().claim(Some(&name("web")), None).map(drop));
        std::thread::sleep(Duration::from_secs(3));
        assert!(!claim.is_finished());
        lock.unlock().unwrap();
        claim.join().unwrap().unwrap();
    });
}

#[test]
fn what_is_not_kept_goes_when_somebody_looks() {
    let place = Place::new();
    let claims: Vec<Claim> = ["kept", "not-kept", "alive", "without-record"]
        .iter()
        .map(|text| place.registry().claim(Some(&name(text)), None).unwrap())
        .collect();
    write_record(&claims[0], true);
    write_record(&claims[1], false);
    write_record(&claims[2], false);
    let mut claims = claims.into_iter();
    drop((claims.next(), claims.next()));
    let alive = claims.next();
    drop(claims);
    place.registry().sweep().unwrap();
    assert_eq!(place.names(), ["alive", "kept"]);
    drop(alive);
    // Whoever wants a name sweeps too.
    let other = place.registry().claim(Some(&name("alive")), None).unwrap();
    assert_eq!(place.names(), ["alive", "kept"]);
    drop(other);
}

#[test]
fn a_damaged_record_is_that_of_nobody() {
    let place = Place::new();
    for damage in ["", "{", "null", "{\"version\":99}", "\0\0\0"] {
        let claim = place.registry().claim(Some(&name("web")), None).unwrap();
        fs::write(claim.path.join(files::RECORD), damage).unwrap();
        let entry = place.registry().find("web").unwrap();
        assert!(entry.alive && entry.record.is_none(), "{damage:?}");
        drop(claim);
        place.registry().sweep().unwrap();
        assert_eq!(place.names(), Vec::<String>::new(), "{damage:?}");
    }
}

#[test]
fn names_that_lead_elsewhere_lead_nowhere() {
    let place = Place::new();
    let registry = place.registry();
    for text in ["..", ".", "", "../web", "/etc", "a/b", ".lock"] {
        assert!(matches!(registry.find(text), Err(Error::Unknown(..))), "{text}");
    }
    // A link in the place of a directory is not followed.
    std::os::unix::fs::symlink("/etc", place.path.join("link")).unwrap();
    assert!(matches!(registry.find("link"), Err(Error::Files { .. })));
    assert_eq!(place.names(), Vec::<String>::new());
    registry.sweep().unwrap();
    assert!(registry.claim(Some(&name("link")), None).is_err());
    assert!(fs::metadata("/etc/passwd").is_ok());
}

#[test]
fn a_directory_that_others_may_write_to_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::new();
    drop(place.registry());
    fs::set_permissions(&place.path, fs::Permissions::from_mode(0o777)).unwrap();
    assert!(matches!(Registry::at(&place.path), Err(Error::Place { .. })));
}

#[test]
fn those_without_a_name_get_different_ones_all_at_once() {
    const THREADS: usize = 8;
    const EACH: usize = 12;
    let place = Place::new();
    let start = Barrier::new(THREADS);
    let claims: Vec<Claim> = std::thread::scope(|scope| {
        let claim = || {
            start.wait();
            (0..EACH).map(|_| place.registry().claim(None, None).unwrap()).collect::<Vec<_>>()
        };
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(claim)).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    // Nobody's directory was swept by another who looked.
    let mut names: Vec<String> = claims.iter().map(|claim| claim.name.to_string()).collect();
    names.sort();
    assert_eq!(names, place.names());
    assert_eq!(names.len(), THREADS * EACH);
    assert!(place.registry().list().unwrap().iter().all(|entry| entry.alive));
}

#[test]
fn domains_that_begin_at_once_do_not_get_more_than_there_is() {
    const THREADS: usize = 8;
    let place = Place::new();
    let one = Demand { memory: 256 << 20, processors: 1 };
    let limits = Limits { memory: Some(3 * one.memory), ..Limits::default() };
    place.registry().set_limits(&limits).unwrap();
    let start = Barrier::new(THREADS);
    let claim = || {
        start.wait();
        place.registry().claim(None, Some(&one))
    };
    let claims: Vec<Result<Claim, Error>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(claim)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let (admitted, refused): (Vec<_>, Vec<_>) = claims.into_iter().partition(Result::is_ok);
    assert_eq!(admitted.len(), 3);
    assert!(refused.iter().all(|claim| matches!(claim, Err(Error::Refused(_)))));
    // Those that were refused have left nothing, and what ends makes room. Others are not counted.
    let demand = Demand { memory: 3 * one.memory, processors: 3 };
    assert_eq!((place.names().len(), place.registry().demand().unwrap()), (3, demand));
    let ordinary = place.registry().claim(Some(&name("pc")), None).unwrap();
    assert_eq!(place.registry().demand().unwrap(), demand);
    drop((admitted, ordinary));
    place.registry().claim(None, Some(&one)).unwrap();
}

#[test]
fn limits_that_cannot_be_read_admit_nobody() {
    let place = Place::new();
    let registry = place.registry();
    fs::write(place.path.join(files::ADMISSION), "{\"memory\": ").unwrap();
    let demand = Demand { memory: 1, processors: 1 };
    let refused = registry.claim(Some(&name("web")), Some(&demand));
    assert!(matches!(refused, Err(Error::Limits(_))), "{refused:?}");
    registry.claim(Some(&name("pc")), None).unwrap();
    registry.set_limits(&Limits::default()).unwrap();
    registry.claim(Some(&name("web")), Some(&demand)).unwrap();
}
