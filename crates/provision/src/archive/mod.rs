//! Packages from Debian's archive itself, for hosts that have no apt.
//!
//! A suite's `InRelease` is signed with a key of Debian's ([`signature`]) and has the checksum of its list of packages,
//! which has the checksum of each package ([`index`]). So it does not matter who delivers them: the archive is asked by
//! HTTPS, and a mirror that the user names may be asked by HTTP.
//!
//! A release's security updates are a suite of their own, at a site of their own beside the archive; of a package that
//! both have the newer one counts ([`version`]). A mirror may lack that site, which the user is told.
//!
//! What is not checked: whether a mirror shows an old suite. Those that say until when they are valid, as backports and
//! security updates do, are refused later; a stable release says nothing of that.
//!
//! (Debian, "Repository Format": wiki.debian.org/DebianRepository/Format.)

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use pgp::composed::SignedPublicKey;
use sha2::{Digest, Sha256};
use ureq::Agent;
use ureq::tls::{RootCerts, TlsConfig};

use self::index::Stanza;
use self::signature::Untrusted;
use super::file::{FileError, at};
use super::limits::{
    DOWNLOAD_SILENCE_TIMEOUT, DOWNLOAD_TIMEOUT, MAX_INDEX_OF_PACKAGES_BYTES, MAX_PACKAGE_BYTES,
    MAX_RELEASE_BYTES,
};
use super::progress::Progress;

mod index;
mod signature;
mod version;

pub(crate) use index::field;

/// Where the archive is.
const SITE: &str = "https://deb.debian.org/debian";

/// The variable that names a mirror of it.
pub const SITE_VARIABLE: &str = "BIVOUAC_DEBIAN_MIRROR";

/// The release whose kernel serves well ([`super::recent`]).
const SUITE: &str = "trixie";

/// The suite with newer packages for that release.
pub const BACKPORTS: &str = "trixie-backports";

/// The releases that have security updates, and what these are called behind their names: the suite's and the site's.
const SECURED: [&str; 2] = ["bookworm", SUITE];
const SECURITY: &str = "-security";

/// How the address of a site ends that has security updates beside it.
const BESIDE_SECURITY: &str = "/debian";

/// The list of packages, as it is packed.
const INDEX: &str = "main/binary-amd64/Packages.xz";

/// How much is read at once.
const CHUNK_BYTES: usize = 1 << 16;

/// Why the archive did not deliver.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file of ours.
    #[error(transparent)]
    File(#[from] FileError),
    /// The network, or who is there.
    #[error("cannot download {url}: {error}")]
    Download {
        /// What was wanted.
        url: String,
        /// Why not.
        error: Box<ureq::Error>,
    },
    /// It ended too soon, or is none of Debian's.
    #[error("what came for {url} is not what Debian has signed: {reason}")]
    Content {
        /// What was wanted.
        url: String,
        /// What it is instead.
        reason: String,
    },
    /// Nobody of Debian's has signed it.
    #[error("{url} cannot be trusted: {reason}")]
    Untrusted {
        /// What was wanted.
        url: String,
        /// Why.
        reason: Untrusted,
    },
    /// It cannot be one.
    #[error("{0:?} is not the name of a suite")]
    NoSuite(String),
}

/// The archive, or a mirror of it.
#[derive(Debug)]
pub struct Archive {
    site: String,
    suite: String,
    keys: Vec<SignedPublicKey>,
    directory: PathBuf,
    agent: Agent,
    packages: HashMap<String, Package>,
}

/// A package, and the site that has it.
#[derive(Debug)]
struct Package {
    site: String,
    stanza: Stanza,
}

impl Archive {
    /// Prepares a directory under `work`.
    pub fn prepare(work: &Path) -> Result<Self, Error> {
        let site = std::env::var(SITE_VARIABLE).ok().filter(|site| !site.is_empty());
        Self::of(&site.unwrap_or_else(|| SITE.to_owned()), signature::debians(), work)
    }

    /// That of this site, which signs with one of these keys.
    fn of(site: &str, keys: Vec<SignedPublicKey>, work: &Path) -> Result<Self, Error> {
        let directory = work.join("archive");
        fs::create_dir_all(&directory).map_err(at(&directory))?;
        let tls = TlsConfig::builder().root_certs(RootCerts::PlatformVerifier).build();
        let configuration = Agent::config_builder()
            .tls_config(tls)
            .timeout_global(Some(DOWNLOAD_TIMEOUT))
            .timeout_connect(Some(DOWNLOAD_SILENCE_TIMEOUT))
            .timeout_recv_response(Some(DOWNLOAD_SILENCE_TIMEOUT))
            .build();
        let agent = Agent::new_with_config(configuration);
        let (site, suite) = (site.trim_end_matches('/').to_owned(), SUITE.to_owned());
        Ok(Self { site, suite, keys, directory, agent, packages: HashMap::new() })
    }

    /// Use this suite.
    pub fn use_suite(&mut self, suite: &str) -> Result<(), Error> {
        let is_part = |part: &str| {
            let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
            !part.is_empty() && part.bytes().all(is_plain)
        };
        if !suite.split('/').all(is_part) {
            return Err(Error::NoSuite(suite.to_owned()));
        }
        suite.clone_into(&mut self.suite);
        Ok(())
    }

    /// Fetches the list of packages.
    pub fn update(&mut self, progress: &Progress) -> Result<(), Error> {
        progress.say("reading the list of Debian's packages");
        let site = self.site.clone();
        self.packages.clear();
        self.add_list(&site, &self.suite.clone(), progress)?;
        if !SECURED.contains(&&*self.suite) {
            return Ok(());
        }
        let without = "packages come without Debian's security updates";
        if !site.ends_with(BESIDE_SECURITY) {
            progress.tell(&format!("{without}: {site} does not end in {BESIDE_SECURITY}"));
            return Ok(());
        }
        let suite = [&self.suite, SECURITY].concat();
        match self.add_list(&[&site, SECURITY].concat(), &suite, progress) {
            // A mirror need not have any.
            Err(error) if site != SITE => {
                progress.tell(&format!("{without}: {error}"));
                Ok(())
            }
            added => added,
        }
    }

    /// Adds what is newer in the list of a site.
    fn add_list(&mut self, site: &str, suite: &str, progress: &Progress) -> Result<(), Error> {
        for (name, stanza) in self.list(site, suite, progress)? {
            let known = self.packages.get(&name).map(|package| &*package.stanza.version);
            if known.is_none_or(|known| version::compare(known, &stanza.version).is_lt()) {
                self.packages.insert(name, Package { site: site.to_owned(), stanza });
            }
        }
        Ok(())
    }

    /// The list of packages of a site's suite.
    fn list(
        &self,
        site: &str,
        name: &str,
        progress: &Progress,
    ) -> Result<HashMap<String, Stanza>, Error> {
        let suite = format!("{site}/dists/{name}");
        let url = format!("{suite}/InRelease");
        let mut signed = Vec::new();
        self.fetch(&url, MAX_RELEASE_BYTES, progress, &mut signed)?;
        let untrusted = |reason| Error::Untrusted { url: url.clone(), reason };
        let release = signature::verified(&signed, &self.keys).map_err(untrusted)?;
        let content = |reason: String| Error::Content { url: url.clone(), reason };
        index::check(&release, name, SystemTime::now()).map_err(content)?;
        let no_index = || content(format!("it names no {INDEX}"));
        let wanted = index::file(&release, INDEX).ok_or_else(no_index)?;
        // A mirror that is being changed has the old list under this name, too.
        let place = match field(&release, "Acquire-By-Hash") == Some("yes") {
            true => format!("main/binary-amd64/by-hash/SHA256/{}", wanted.sha256),
            false => INDEX.to_owned(),
        };
        let url = format!("{suite}/{place}");
        let path = self.directory.join("Packages.xz");
        self.fetch_file(&url, &wanted, MAX_INDEX_OF_PACKAGES_BYTES, progress, &path)?;
        let read = File::open(&path).and_then(|file| index::read(io::BufReader::new(file)));
        Ok(read.map_err(at(&path))?)
    }

    /// What the list says of a package; nothing if it has none of that name.
    pub fn show(&self, package: &str) -> &str {
        self.packages.get(package).map(|package| &*package.stanza.text).unwrap_or_default()
    }

    /// Downloads a package of the list.
    pub fn download(&self, package: &str, progress: &Progress) -> Result<Option<PathBuf>, Error> {
        progress.say(&format!("downloading {package}"));
        let Some(Package { site, stanza }) = self.packages.get(package) else { return Ok(None) };
        let url = format!("{site}/{}", stanza.path);
        let refused = |reason: &str| Error::Content { url: url.clone(), reason: reason.to_owned() };
        let name = Path::new(&stanza.path).file_name().ok_or_else(|| refused("it has no name"))?;
        let path = self.directory.join(name);
        self.fetch_file(&url, &stanza.file, MAX_PACKAGE_BYTES, progress, &path)?;
        Ok(Some(path))
    }

    /// Fetches what has this size and checksum into a file.
    fn fetch_file(
        &self,
        url: &str,
        wanted: &index::File,
        limit: u64,
        progress: &Progress,
        path: &Path,
    ) -> Result<(), Error> {
        let mut sink = Hashing { file: File::create(path).map_err(at(path))?, hash: Sha256::new() };
        let bytes = self.fetch(url, wanted.bytes.min(limit), progress, &mut sink)?;
        let hash =
            sink.hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let refused = |reason: String| Error::Content { url: url.to_owned(), reason };
        match () {
            () if bytes != wanted.bytes => {
                Err(refused(format!("it has {bytes} bytes instead of {}", wanted.bytes)))
            }
            () if hash != wanted.sha256 => Err(refused("it has another checksum".to_owned())),
            () => Ok(()),
        }
    }

    /// Fetches at most so many bytes, and says how many there were.
    fn fetch(
        &self,
        url: &str,
        limit: u64,
        progress: &Progress,
        sink: &mut impl Write,
    ) -> Result<u64, Error> {
        let failed = |error| Error::Download { url: url.to_owned(), error: Box::new(error) };
        let mut response = self.agent.get(url).call().map_err(failed)?;
        let mut body = response.body_mut().as_reader().take(limit + 1);
        let (mut chunk, mut bytes) = (vec![0; CHUNK_BYTES], 0);
        loop {
            let count = body.read(&mut chunk).map_err(|error| failed(error.into()))?;
            if count == 0 {
                return Ok(bytes);
            }
            bytes += count as u64;
            if bytes > limit {
                let reason = format!("it has more than {limit} bytes");
                return Err(Error::Content { url: url.to_owned(), reason });
            }
            sink.write_all(&chunk[..count]).map_err(at(&self.directory))?;
            progress.set(100.0 * bytes as f64 / limit as f64);
        }
    }
}

/// A file of which the checksum is made as it is written.
struct Hashing {
    file: File,
    hash: Sha256,
}

impl Write for Hashing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.file.write(bytes)?;
        self.hash.update(&bytes[..count]);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

#[cfg(test)]
mod tests;
