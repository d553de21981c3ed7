//! What an archive's signed files say: `Release` and `Packages` (Debian, "Repository Format"; stanzas of fields, as
//! deb822(5) has them).

use std::collections::HashMap;
use std::io::{self, BufRead, BufReader, Read};
use std::time::SystemTime;

use lzma_rust2::XzReader;

use crate::limits::{MAX_DICTIONARY_KIBIBYTES, MAX_STANZA_BYTES, MAX_UNPACKED_INDEX_BYTES};

/// How the names of packages begin that are of use.
const USEFUL: [&str; 4] = ["busybox-static", "linux-binary-", "linux-image-", "linux-modules-"];

/// A file of the archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct File {
    /// Its checksum, in small hexadecimal digits.
    pub sha256: String,
    /// Its size.
    pub bytes: u64,
}

impl File {
    fn new(sha256: &str, bytes: &str) -> Option<Self> {
        let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        let is_sum = sha256.len() == 64 && sha256.bytes().all(is_digit);
        is_sum.then(|| Some(Self { sha256: sha256.to_owned(), bytes: bytes.parse().ok()? }))?
    }
}

/// A package of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stanza {
    /// All that is said of it.
    pub text: String,
    /// Its version.
    pub version: String,
    /// The file.
    pub file: File,
    /// Where that is below the site.
    pub path: String,
}

impl Stanza {
    fn new(text: &str) -> Option<(String, Self)> {
        let name = field(text, "Package")?;
        let version = field(text, "Version")?.to_owned();
        let file = File::new(field(text, "SHA256")?, field(text, "Size")?)?;
        let path = field(text, "Filename").filter(|path| is_path(path))?.to_owned();
        Some((name.to_owned(), Self { text: text.to_owned(), version, file, path }))
    }
}

/// Whether it leads to something below the site.
fn is_path(path: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._+~:".contains(&byte);
    path.split('/')
        .all(|part| !part.is_empty() && part != "." && part != ".." && part.bytes().all(is_plain))
}

/// What a field of one line says.
pub fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let value = |line: &'a str| line.strip_prefix(name)?.strip_prefix(':');
    text.lines().find_map(value).map(str::trim)
}

/// Whether a release is that of this suite, and still valid.
pub fn check(release: &str, suite: &str, now: SystemTime) -> Result<(), String> {
    let names = ["Codename", "Suite"].map(|name| field(release, name));
    if !names.contains(&Some(suite)) {
        let [codename, _] = names;
        return Err(format!("it is the suite {:?}", codename.unwrap_or_default()));
    }
    let Some(until) = field(release, "Valid-Until") else { return Ok(()) };
    let time = httpdate::parse_http_date(&until.replace("UTC", "GMT"));
    match time {
        Ok(time) if time >= now => Ok(()),
        Ok(_) => Err(format!("it was valid until {until}")),
        Err(_) => Err(format!("it is valid until {until:?}, which is no time")),
    }
}

/// The file of this name, in a release's section `SHA256`.
pub fn file(release: &str, name: &str) -> Option<File> {
    let section = release.lines().skip_while(|line| *line != "SHA256:").skip(1);
    section.take_while(|line| line.starts_with(' ')).find_map(|line| {
        let mut words = line.split_ascii_whitespace();
        let (sha256, bytes, path) = (words.next()?, words.next()?, words.next()?);
        (path == name).then(|| File::new(sha256, bytes))?
    })
}

/// The packages of a list that are of use; of several with one name the last.
pub fn read(packed: impl Read) -> io::Result<HashMap<String, Stanza>> {
    let unpacked = XzReader::new_mem_limit(packed, true, MAX_DICTIONARY_KIBIBYTES);
    let mut lines = BufReader::new(unpacked.take(MAX_UNPACKED_INDEX_BYTES));
    let (mut packages, mut stanza) = (HashMap::new(), String::new());
    loop {
        let start = stanza.len();
        let mut line = (&mut lines).take(MAX_STANZA_BYTES + 1);
        let count = line.read_line(&mut stanza)?;
        if stanza.len() as u64 > MAX_STANZA_BYTES {
            return Err(io::Error::other("what it says of a package is too long"));
        }
        if count > 0 && stanza[start..].trim_end() != "" {
            continue;
        }
        let is_useful = USEFUL
            .iter()
            .any(|name| field(&stanza, "Package").is_some_and(|package| package.starts_with(name)));
        packages.extend(Stanza::new(&stanza).filter(|_| is_useful));
        stanza.clear();
        if count == 0 {
            return Ok(packages);
        }
    }
}
