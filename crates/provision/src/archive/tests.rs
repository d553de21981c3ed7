//! An archive of a test's own, signed with a key of its own, behind HTTP on loopback.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use pgp::composed::{CleartextSignedMessage, KeyType, SecretKeyParamsBuilder, SignedSecretKey};
use pgp::types::Password;

use super::*;

/// A file of an archive: what it is called below the site, and what is in it.
type Files = Vec<(String, Vec<u8>)>;

fn key() -> SignedSecretKey {
    let mut parameters = SecretKeyParamsBuilder::default();
    parameters.key_type(KeyType::Ed25519Legacy).can_sign(true).primary_user_id("tests".into());
    parameters.build().unwrap().generate(rand::thread_rng()).unwrap()
}

fn sum(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What an archive has that `key` signs: one package, and a list in which there are others.
fn files(key: &SignedSecretKey, header: &str) -> Files {
    suite(key, header, SUITE, "1", b"a package")
}

/// The same of a suite of this name, whose packages have a version and such bytes.
fn suite(key: &SignedSecretKey, header: &str, suite: &str, version: &str, deb: &[u8]) -> Files {
    let stanza = |name: &str, path: &str| {
        format!(
            "Package: {name}\nVersion: {version}\nFilename: {path}\nSize: {}\nSHA256: {}\n\n",
            deb.len(),
            sum(deb)
        )
    };
    let list = [
        stanza("other", "pool/other_1_amd64.deb"),
        stanza("busybox-static", "pool/busybox-static_1_amd64.deb"),
        stanza("linux-image-evil", "../../etc/passwd"),
        // The last one may lack its empty line.
        stanza("linux-image-amd64", "pool/l_1_amd64.deb").trim_end().to_owned(),
    ];
    let mut xz = liblzma::write::XzEncoder::new(Vec::new(), 6);
    xz.write_all(list.concat().as_bytes()).unwrap();
    let index = xz.finish().unwrap();
    let release = format!(
        "Origin: Tests\n{header}SHA256:\n {} {} main/binary-arm64/Packages.xz\n {} {} {INDEX}\n",
        sum(b""),
        0,
        sum(&index),
        index.len()
    );
    let signed = CleartextSignedMessage::sign(
        rand::thread_rng(),
        &release,
        &key.primary_key,
        &Password::empty(),
    );
    let signed = signed.unwrap().to_armored_bytes(Default::default()).unwrap();
    vec![
        (format!("dists/{suite}/InRelease"), signed),
        (format!("dists/{suite}/{INDEX}"), index),
        ("pool/busybox-static_1_amd64.deb".to_owned(), deb.to_vec()),
    ]
}

/// Serves files until the test's process ends; where.
fn serve(files: Files) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let mut lines = BufReader::new(&stream).lines().map_while(Result::ok);
            let asked = lines.next().unwrap_or_default();
            // The head of the request ends in an empty line.
            lines.take_while(|line| !line.is_empty()).for_each(drop);
            let path = asked.split(' ').nth(1).unwrap_or_default().trim_start_matches('/');
            let found = files.iter().find(|(name, _)| name == path);
            let (status, body) =
                found.map_or(("404 Not Found", &b""[..]), |(_, it)| ("200 OK", it));
            let length = body.len();
            let head = format!(
                "HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n"
            );
            // Who asked may be gone.
            let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body));
        }
    });
    format!("http://{address}/")
}

/// The directory of one test.
struct Work(PathBuf);

impl Work {
    fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("biv-archive-{}-{number}", std::process::id());
        Self(std::env::temp_dir().join(name))
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

const HEADER: &str = "Suite: stable\nCodename: trixie\n";

/// Busybox's package from such files, as one who trusts `key` gets it.
fn fetch(files: Files, key: &SignedSecretKey) -> Result<Option<Vec<u8>>, String> {
    fetch_from(&serve(files), key, "1")
}

/// The same of a site whose packages have this version.
fn fetch_from(site: &str, key: &SignedSecretKey, version: &str) -> Result<Option<Vec<u8>>, String> {
    let (work, progress) = (Work::new(), Progress::start());
    let keys = vec![SignedPublicKey::from(key.clone())];
    let mut archive = Archive::of(site, keys, &work.0).map_err(|it| it.to_string())?;
    archive.update(&progress).map_err(|error| error.to_string())?;
    assert_eq!(archive.show("linux-image-evil"), "", "it leads out of the archive");
    assert_eq!(archive.show("other"), "", "nobody needs it");
    assert!(archive.show("linux-image-amd64").contains(&format!("Version: {version}\n")));
    let fetched = archive.download("busybox-static", &progress);
    let fetched = fetched.map_err(|error| error.to_string())?;
    Ok(fetched.map(|path| fs::read(path).unwrap()))
}

fn check_refused(files: Files, key: &SignedSecretKey, word: &str) {
    let error = fetch(files, key).unwrap_err();
    assert!(error.contains(word), "{error:?} does not say {word:?}");
}

#[test]
fn a_package_comes_from_an_archive_that_is_signed() {
    let key = key();
    assert_eq!(fetch(files(&key, HEADER), &key), Ok(Some(b"a package".to_vec())));
}

#[test]
fn of_a_package_with_a_security_update_the_newer_one_counts() {
    let key = key();
    let site = |version, security: Option<(&str, &str)>| {
        let below = |site: &str, files: Files| {
            files.into_iter().map(|(name, bytes)| (format!("{site}/{name}"), bytes)).collect()
        };
        let mut all: Files = below("debian", suite(&key, HEADER, SUITE, version, b"a package"));
        if let Some((version, header)) = security {
            let files = suite(&key, header, "trixie-security", version, b"an update");
            all.extend::<Files>(below("debian-security", files));
        }
        format!("{}debian/", serve(all))
    };
    let header = "Codename: trixie-security\n";
    let newer = fetch_from(&site("6.12.9-1", Some(("6.12.10-1", header))), &key, "6.12.10-1");
    assert_eq!(newer, Ok(Some(b"an update".to_vec())));
    let older = fetch_from(&site("6.12.9-1", Some(("6.12.9-1~deb13u1", header))), &key, "6.12.9-1");
    assert_eq!(older, Ok(Some(b"a package".to_vec())));
    // A mirror may have none, or what is none.
    let none = fetch_from(&site("6.12.9-1", None), &key, "6.12.9-1");
    assert_eq!(none, Ok(Some(b"a package".to_vec())));
    let other = fetch_from(&site("6.12.9-1", Some(("7-1", "Codename: sid\n"))), &key, "6.12.9-1");
    assert_eq!(other, Ok(Some(b"a package".to_vec())));
}

#[test]
fn what_is_not_what_was_signed_is_refused() {
    let (key, other) = (key(), self::key());
    check_refused(files(&other, HEADER), &key, "none of its signatures");
    for (number, word) in [(0, "cannot be trusted"), (1, "checksum"), (2, "checksum")] {
        let mut changed = files(&key, HEADER);
        let bytes = &mut changed[number].1;
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        check_refused(changed, &key, word);
    }
    for number in [1, 2] {
        let mut longer = files(&key, HEADER);
        longer[number].1.push(b' ');
        check_refused(longer, &key, "it has more than");
        let mut shorter = files(&key, HEADER);
        shorter[number].1.pop();
        check_refused(shorter, &key, "bytes instead of");
    }
}

/// What is before or after the signed text says nothing.
#[test]
fn what_stands_around_a_signed_text_is_not_believed() {
    let key = key();
    let [(name, signed), ..] = &files(&key, HEADER)[..] else { panic!("three files") };
    for text in [[b"Codename: sid\n", &signed[..]].concat(), [signed, &b"more"[..]].concat()] {
        let mut files = files(&key, HEADER);
        files[0] = (name.clone(), text);
        check_refused(files, &key, "not a signed text");
    }
}

#[test]
fn another_suite_and_one_that_is_out_of_date_are_refused() {
    let key = key();
    check_refused(files(&key, "Codename: bookworm\n"), &key, "it is the suite \"bookworm\"");
    let until = |time: SystemTime| {
        let time = httpdate::fmt_http_date(time).replace("GMT", "UTC");
        files(&key, &format!("{HEADER}Valid-Until: {time}\n"))
    };
    let (now, day) = (SystemTime::now(), Duration::from_secs(86_400));
    check_refused(until(now - day), &key, "it was valid until");
    assert!(fetch(until(now + day), &key).is_ok());
    check_refused(files(&key, &format!("{HEADER}Valid-Until: soon\n")), &key, "no time");
}

#[test]
fn a_mirror_that_does_not_answer_is_an_error() {
    let key = key();
    check_refused(Vec::new(), &key, "404");
}

#[test]
fn a_suite_is_a_name() {
    let work = Work::new();
    let mut archive = Archive::of("http://127.0.0.1:1", Vec::new(), &work.0).unwrap();
    for name in ["", "..", "../x", "a b", "/trixie"] {
        assert!(archive.use_suite(name).is_err(), "{name:?}");
    }
    archive.use_suite("trixie-backports").unwrap();
    archive.use_suite("trixie/updates").unwrap();
}

/// Against the mirror that the host's apt uses, where there is one.
#[test]
fn debians_own_archive_is_believed() {
    let Some(site) = crate::apt::site().filter(|site| site.ends_with("/debian/")) else {
        return println!("left out: the host's apt has no mirror of Debian's");
    };
    let (work, progress) = (Work::new(), Progress::start());
    assert_eq!(signature::debians().len(), 6);
    let mut archive = Archive::of(&site, signature::debians(), &work.0).unwrap();
    archive.update(&progress).unwrap();
    let security = |package: &Package| package.site.ends_with(SECURITY);
    println!(
        "{} packages are security updates",
        archive.packages.values().filter(|it| security(it)).count()
    );
    let kernel = archive.show("linux-image-cloud-amd64");
    assert!(kernel.contains("Depends: linux-image-6.12"), "{kernel:?}");
    let package = archive.download("busybox-static", &progress).unwrap().unwrap();
    assert!(fs::metadata(package).unwrap().len() > 100_000);
}
