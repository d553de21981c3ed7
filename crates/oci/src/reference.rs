//! What images are called, as Docker and podman have it: `debian` is `docker.io/library/debian:latest`.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use oci_spec::distribution::Reference;

use crate::{Digest, Error};

/// Whom images belong to that came from a file and not from a registry.
const LOCAL: &str = "localhost";

/// Hexadecimal digits of a digest that stand for an image: as many as lists show.
pub const SHORT_DIGITS: usize = 12;

/// The longest text that is looked at.
const MAX_NAME_BYTES: usize = 512;

/// The whole name of an image: registry, repository, and a tag or a digest.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(String);

impl Name {
    /// The name that a registry has for what is typed.
    ///
    /// # Errors
    ///
    /// [`Error::Name`].
    pub fn parse(text: &str) -> Result<Self, Error> {
        let refused = |why: String| Error::Name { name: text.chars().take(100).collect(), why };
        if text.len() > MAX_NAME_BYTES {
            return Err(refused("it is too long".to_owned()));
        }
        let reference: Reference = text
            .parse()
            .map_err(|error: oci_spec::distribution::ParseError| refused(error.to_string()))?;
        if let Some(digest) = reference.digest() {
            digest.parse::<Digest>()?;
        }
        Ok(Self(reference.whole()))
    }

    /// What an image is called that came from a file of that name with that tag; `None` if no name can be made of it.
    #[must_use]
    pub fn local(file: &str, tag: &str) -> Option<Self> {
        let is_kept = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
        let name: String =
            file.to_lowercase().chars().map(|c| if is_kept(c) { c } else { '-' }).collect();
        let words: Vec<_> = name.split('-').filter(|word| !word.is_empty()).collect();
        Self::parse(&format!("{LOCAL}/{}:{tag}", words.join("-"))).ok()
    }

    /// For who asks a registry.
    ///
    /// # Errors
    ///
    /// None: it was one before.
    pub fn reference(&self) -> Result<Reference, Error> {
        let refused = |error: oci_spec::distribution::ParseError| Error::Name {
            name: self.0.clone(),
            why: error.to_string(),
        };
        self.0.parse().map_err(refused)
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// What is addressed by content.
    #[must_use]
    pub fn digest(&self) -> Option<Digest> {
        self.0.split_once('@').and_then(|(_, digest)| digest.parse().ok())
    }

    /// The same without a digest.
    #[must_use]
    pub fn without_digest(&self) -> &str {
        self.0.split_once('@').map_or(&self.0, |(name, _)| name)
    }
}

impl fmt::Display for Name {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

/// What an image of the store may be meant by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// Names, of which the first that is there is meant.
    pub names: Vec<Name>,
    /// The digest of a manifest.
    pub digest: Option<Digest>,
    /// The beginning of one, in hexadecimal digits.
    pub beginning: Option<String>,
}

impl Wanted {
    /// What a text means.
    ///
    /// # Errors
    ///
    /// [`Error::Name`]: nothing.
    pub fn parse(text: &str) -> Result<Self, Error> {
        if let Ok(digest) = text.parse::<Digest>() {
            return Ok(Self { names: Vec::new(), digest: Some(digest), beginning: None });
        }
        let digits = text.strip_prefix("sha256:").unwrap_or(text);
        let is_digit = |c: char| c.is_ascii_digit() || ('a'..='f').contains(&c);
        let is_beginning = digits.len() >= SHORT_DIGITS && digits.chars().all(is_digit);
        let beginning = is_beginning.then(|| digits.to_owned());
        if text.starts_with("sha256:") && is_beginning {
            return Ok(Self { names: Vec::new(), digest: None, beginning });
        }
        let name = Name::parse(text);
        // A short name may be one of those that came from a file.
        let local = Name::parse(&format!("{LOCAL}/{text}")).ok().filter(|_| is_short(text));
        let digest = name.as_ref().ok().and_then(Name::digest);
        let names: Vec<_> = local.into_iter().chain(name.as_ref().ok().cloned()).collect();
        match (names.is_empty() && beginning.is_none(), name) {
            (true, Err(error)) => Err(error),
            _ => Ok(Self { names, digest, beginning }),
        }
    }
}

/// Whether a name says no registry.
#[must_use]
pub fn is_short(text: &str) -> bool {
    match text.split_once('/') {
        Some((first, _)) => !first.contains(['.', ':']) && first != LOCAL,
        None => true,
    }
}

/// Where an image comes from, as skopeo and podman have it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// `oci:DIR[:TAG]`: a directory in the layout of the specification.
    Layout(PathBuf, Option<String>),
    /// `oci-archive:FILE[:TAG]`: the same as an archive.
    LayoutArchive(PathBuf, Option<String>),
    /// `docker-archive:FILE[:NAME]`: what `docker save` writes.
    DockerArchive(PathBuf, Option<String>),
    /// `docker://NAME`, or a name: a registry's.
    Registry(Name),
}

impl Source {
    /// The file or directory that it names, and what in it.
    #[must_use]
    pub fn path(&self) -> Option<(&PathBuf, Option<&str>)> {
        match self {
            Self::Layout(path, wanted)
            | Self::LayoutArchive(path, wanted)
            | Self::DockerArchive(path, wanted) => Some((path, wanted.as_deref())),
            Self::Registry(_) => None,
        }
    }

    /// Whether a text names a file or directory, and nothing that is in the store.
    #[must_use]
    pub fn is_path(text: &str) -> bool {
        PATHS.iter().any(|prefix| text.starts_with(prefix))
    }
}

/// What the names of files begin with.
const PATHS: [&str; 3] = ["oci:", "oci-archive:", "docker-archive:"];

impl FromStr for Source {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let found = PATHS.iter().find_map(|prefix| Some((*prefix, text.strip_prefix(prefix)?)));
        let Some((prefix, rest)) = found else {
            let name = text.strip_prefix("docker://").unwrap_or(text);
            return Ok(Self::Registry(Name::parse(name)?));
        };
        let (path, wanted) = match rest.split_once(':') {
            Some((path, wanted)) if !wanted.is_empty() => (path, Some(wanted.to_owned())),
            Some((path, _)) => (path, None),
            None => (rest, None),
        };
        if path.is_empty() {
            return Err(Error::Name { name: text.to_owned(), why: "it names no file".to_owned() });
        }
        Ok(match prefix {
            "oci:" => Self::Layout(path.into(), wanted),
            "oci-archive:" => Self::LayoutArchive(path.into(), wanted),
            _ => Self::DockerArchive(path.into(), wanted),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEX: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    #[test]
    fn short_names_are_what_docker_takes_them_for() {
        let check = |text: &str, whole: &str| {
            assert_eq!(Name::parse(text).unwrap().as_str(), whole, "{text}");
        };
        check("debian", "docker.io/library/debian:latest");
        check("debian:12", "docker.io/library/debian:12");
        check("someone/web", "docker.io/someone/web:latest");
        check("quay.io/a/b/c:v1", "quay.io/a/b/c:v1");
        check("localhost:5000/x", "localhost:5000/x:latest");
        check("localhost/x", "localhost/x:latest");
        check(&format!("a@sha256:{HEX}"), &format!("docker.io/library/a@sha256:{HEX}"));
        check(&format!("q.io/a:1@sha256:{HEX}"), &format!("q.io/a:1@sha256:{HEX}"));
        for text in ["", "A", "-x", "a b", "a:", ":a", "a@sha256:12", "../a", "a/../b", "ä"] {
            assert!(Name::parse(text).is_err(), "{text:?}");
        }
        assert!(Name::parse(&"a".repeat(600)).is_err());
    }

    #[test]
    fn an_image_is_meant_by_its_name_or_its_digest() {
        let names = |text: &str| {
            let wanted = Wanted::parse(text).unwrap();
            wanted.names.iter().map(Name::to_string).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(names("web:1"), "localhost/web:1 docker.io/library/web:1");
        assert_eq!(names("quay.io/web"), "quay.io/web:latest");
        assert_eq!(names("localhost/web"), "localhost/web:latest");
        let digest: Digest = format!("sha256:{HEX}").parse().unwrap();
        assert_eq!(Wanted::parse(&format!("sha256:{HEX}")).unwrap().digest, Some(digest));
        assert_eq!(Wanted::parse(&format!("x:1@sha256:{HEX}")).unwrap().digest, Some(digest));
        let begun = Wanted::parse(&HEX[..12]).unwrap();
        assert_eq!(begun.beginning.as_deref(), Some(&HEX[..12]));
        assert_eq!(Wanted::parse(&HEX[..11]).unwrap().beginning, None);
        assert!(Wanted::parse("No").is_err());
    }

    #[test]
    fn a_source_is_a_file_or_a_registry() {
        let check = |text: &str, source: Source| {
            assert_eq!(text.parse::<Source>().unwrap(), source, "{text}");
            assert_eq!(Source::is_path(text), source.path().is_some());
        };
        check("oci:/a/b:12", Source::Layout("/a/b".into(), Some("12".into())));
        check("oci:dir", Source::Layout("dir".into(), None));
        check(
            "oci-archive:x.tar:q.io/a:1",
            Source::LayoutArchive("x.tar".into(), Some("q.io/a:1".into())),
        );
        check("docker-archive:x.tar", Source::DockerArchive("x.tar".into(), None));
        let debian = Name::parse("debian").unwrap();
        check("docker://debian", Source::Registry(debian.clone()));
        check("debian", Source::Registry(debian));
        assert!("oci:".parse::<Source>().is_err());
    }

    #[test]
    fn what_comes_from_a_file_has_a_name() {
        let name = |file, tag| Name::local(file, tag).map(|name| name.to_string());
        assert_eq!(name("My Image", "v1").as_deref(), Some("localhost/my-image:v1"));
        assert_eq!(name("x.tar", "latest").as_deref(), Some("localhost/x-tar:latest"));
        assert_eq!(name("é", "a"), None);
        assert_eq!(name("a", "b c"), None);
    }
}
