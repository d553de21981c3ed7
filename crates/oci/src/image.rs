//! An image: its manifest, its configuration, and what that says of the command.

use oci_spec::image::{Arch, ImageConfiguration, ImageIndex, ImageManifest, MediaType, Os};
use serde::de::DeserializeOwned;

use crate::limits::{MAX_LAYERS, MAX_MANIFESTS};
use crate::{Digest, Error, Name};

/// An image of the store.
#[derive(Debug, Clone)]
pub struct Image {
    /// The digest of its manifest, by which it is known.
    pub digest: Digest,
    /// What it is called; nothing, if its names are others' now.
    pub names: Vec<Name>,
    /// The manifest as it was published.
    pub text: Vec<u8>,
    /// The type under which it was published.
    pub media_type: String,
    /// What it says.
    pub manifest: Manifest,
    /// The configuration.
    pub configuration: ImageConfiguration,
    /// The configuration as it was published.
    pub configuration_text: Vec<u8>,
}

/// A part of an image, addressed by its content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blob {
    /// Its digest.
    pub digest: Digest,
    /// Its length.
    pub bytes: u64,
}

/// What a manifest says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manifest {
    /// The configuration.
    pub configuration: Blob,
    /// The layers, the lowest first.
    pub layers: Vec<Blob>,
}

/// What a command gets from its image.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Defaults {
    /// What every command of the image begins with.
    pub entrypoint: Vec<String>,
    /// What runs, behind that, if no command is given.
    pub command: Vec<String>,
    /// Variables, NAME=VALUE.
    pub environment: Vec<String>,
    /// Whom it runs as.
    pub user: Option<String>,
    /// Where it starts.
    pub directory: Option<String>,
    /// The signal by which it is asked to end, by name or number, which need not make sense.
    pub stop_signal: Option<String>,
    /// Ports that it listens at, and whether they are UDP's.
    pub ports: Vec<(u16, bool)>,
}

fn json<T: DeserializeOwned>(text: &[u8], what: &'static str) -> Result<T, Error> {
    serde_json::from_slice(text).map_err(|error| Error::Json { what, error: error.to_string() })
}

/// A document that stands for an image.
pub enum Document {
    /// One image.
    Manifest(Manifest),
    /// Several, for different machines.
    Index(Box<ImageIndex>),
}

impl Document {
    /// Reads a manifest or an index.
    ///
    /// # Errors
    ///
    /// [`Error::Json`]; [`Error::Unsupported`].
    pub fn parse(text: &[u8]) -> Result<Self, Error> {
        #[derive(serde::Deserialize)]
        struct Kind {
            #[serde(default)]
            manifests: Option<serde::de::IgnoredAny>,
            #[serde(default, rename = "schemaVersion")]
            version: u32,
        }
        let kind: Kind = json(text, "manifest")?;
        if kind.version != 2 {
            let text = format!("its manifest has version {}", kind.version);
            return Err(Error::Unsupported(text));
        }
        match kind.manifests {
            Some(_) => {
                let index: ImageIndex = json(text, "index")?;
                match index.manifests().len() <= MAX_MANIFESTS {
                    true => Ok(Self::Index(Box::new(index))),
                    false => Err(Error::Unsupported("its index has too many manifests".into())),
                }
            }
            None => Ok(Self::Manifest(Manifest::parse(text)?)),
        }
    }
}

/// Whether a machine of ours runs the programs of a platform, which may be those of 32 bits.
fn is_ours(os: &Os, architecture: &Arch) -> bool {
    *os == Os::Linux && matches!(architecture, Arch::Amd64 | Arch::i386)
}

/// The manifest of an index that is for a machine of ours: the one of the oldest processors, of 64 bits if there are
/// such.
///
/// # Errors
///
/// [`Error::Platform`]: there is none.
pub fn choose(index: &ImageIndex) -> Result<Blob, Error> {
    let manifests = index.manifests();
    let fits = |manifest: &&oci_spec::image::Descriptor| match manifest.platform() {
        Some(platform) => is_ours(platform.os(), platform.architecture()),
        // A list of one is for who it is for.
        None => manifests.len() == 1,
    };
    let demands = |manifest: &&oci_spec::image::Descriptor| {
        let platform = manifest.platform().as_ref();
        let is_32_bit = platform.is_some_and(|it| *it.architecture() == Arch::i386);
        (is_32_bit, platform.and_then(|it| it.variant().clone()).unwrap_or_default())
    };
    let found = manifests.iter().filter(fits).min_by_key(demands);
    let shown = || {
        let platforms = manifests.iter().filter_map(|manifest| manifest.platform().as_ref());
        let names = platforms.map(|it| format!("{}/{}", it.os(), it.architecture()));
        names.take(20).collect::<Vec<_>>().join(", ")
    };
    found.ok_or_else(|| Error::Platform(shown())).and_then(Blob::of)
}

impl Blob {
    fn of(descriptor: &oci_spec::image::Descriptor) -> Result<Self, Error> {
        let digest = descriptor.digest().to_string().parse()?;
        Ok(Self { digest, bytes: descriptor.size() })
    }
}

impl Manifest {
    /// Reads a manifest.
    ///
    /// # Errors
    ///
    /// [`Error::Json`]; [`Error::Unsupported`]: it is of no image that could be run.
    pub fn parse(text: &[u8]) -> Result<Self, Error> {
        let manifest: ImageManifest = json(text, "manifest")?;
        let layers = manifest.layers();
        if layers.len() > MAX_LAYERS {
            let text = format!("it has {} layers, and {MAX_LAYERS} is the most", layers.len());
            return Err(Error::Unsupported(text));
        }
        let is_layer = |kind: &MediaType| match kind {
            MediaType::Other(name) => name.contains("docker.image.rootfs"),
            MediaType::EmptyJSON => false,
            _ => true,
        };
        if let Some(layer) = layers.iter().find(|layer| !is_layer(layer.media_type())) {
            let text = format!("it has parts of the type {}", layer.media_type());
            return Err(Error::Unsupported(text));
        }
        Ok(Self {
            configuration: Blob::of(manifest.config())?,
            layers: layers.iter().map(Blob::of).collect::<Result<_, _>>()?,
        })
    }

    /// Bytes of its layers, as they were published.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.layers.iter().fold(0, |sum, layer| sum.saturating_add(layer.bytes))
    }
}

/// Reads the configuration of an image with that manifest.
///
/// # Errors
///
/// [`Error::Json`]; [`Error::Platform`]; [`Error::Unsupported`]: it does not fit the manifest.
pub fn configuration(text: &[u8], manifest: &Manifest) -> Result<ImageConfiguration, Error> {
    let configuration: ImageConfiguration = json(text, "configuration")?;
    let (os, architecture) = (configuration.os(), configuration.architecture());
    if !is_ours(os, architecture) {
        return Err(Error::Platform(format!("{os}/{architecture}")));
    }
    if diff_ids(&configuration)?.len() != manifest.layers.len() {
        let text = "its configuration has another number of layers than its manifest";
        return Err(Error::Unsupported(text.to_owned()));
    }
    Ok(configuration)
}

/// The digests of the layers, unpacked, the lowest first.
///
/// # Errors
///
/// [`Error::NoDigest`].
pub fn diff_ids(configuration: &ImageConfiguration) -> Result<Vec<Digest>, Error> {
    let ids = configuration.rootfs().diff_ids().iter();
    Ok(ids.map(|id| id.parse()).collect::<Result<_, _>>()?)
}

impl Image {
    /// What its command gets.
    #[must_use]
    pub fn defaults(&self) -> Defaults {
        let Some(config) = self.configuration.config() else { return Defaults::default() };
        let said = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
        let list = |list: &Option<Vec<String>>| list.clone().unwrap_or_default();
        let ports = list(config.exposed_ports());
        let ports = ports.iter().filter_map(|port| parse_port(port)).flatten();
        // Whatever has no name is no variable.
        let is_variable = |text: &String| text.find('=').is_some_and(|at| at > 0);
        Defaults {
            entrypoint: list(config.entrypoint()),
            command: list(config.cmd()),
            environment: list(config.env()).into_iter().filter(is_variable).collect(),
            user: said(config.user()),
            directory: said(config.working_dir()),
            stop_signal: said(config.stop_signal()),
            ports: ports.collect(),
        }
    }

    /// Bytes of its layers, as they were published.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.manifest.bytes()
    }
}

/// `80`, `80/tcp`, `80/udp`, or a range of ports. What is none of these is nobody's.
fn parse_port(text: &str) -> Option<Vec<(u16, bool)>> {
    let (ports, protocol) = text.split_once('/').unwrap_or((text, "tcp"));
    let is_udp = match protocol {
        "tcp" => false,
        "udp" => true,
        _ => return None,
    };
    let (first, last) = ports.split_once('-').unwrap_or((ports, ports));
    let (first, last): (u16, u16) = (first.parse().ok()?, last.parse().ok()?);
    Some((first.max(1)..=last).map(|port| (port, is_udp)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_numbers() {
        assert_eq!(parse_port("80"), Some(vec![(80, false)]));
        assert_eq!(parse_port("53/udp"), Some(vec![(53, true)]));
        assert_eq!(parse_port("8000-8001/tcp"), Some(vec![(8000, false), (8001, false)]));
        for text in ["", "x", "80/sctp", "65536", "-1"] {
            assert_eq!(parse_port(text), None, "{text}");
        }
        assert_eq!(parse_port("0"), Some(vec![]));
    }

    #[test]
    fn the_manifest_for_the_oldest_processors_is_chosen() {
        let digest = |n: u8| Digest::of(&[n]);
        let entry = |n: u8, os: &str, architecture: &str, variant: &str| {
            format!(
                r#"{{"mediaType": "application/vnd.oci.image.manifest.v1+json", "size": 7,
                    "digest": "{}", "platform": {{"os": "{os}", "architecture": "{architecture}"
                    {variant}}}}}"#,
                digest(n)
            )
        };
        let index = |entries: &[String]| {
            let text = format!(r#"{{"schemaVersion": 2, "manifests": [{}]}}"#, entries.join(","));
            match Document::parse(text.as_bytes()).unwrap() {
                Document::Index(index) => choose(&index),
                Document::Manifest(_) => panic!("not an index"),
            }
        };
        let found = index(&[
            entry(1, "linux", "arm64", r#", "variant": "v8""#),
            entry(2, "linux", "amd64", r#", "variant": "v3""#),
            entry(3, "linux", "amd64", ""),
            entry(4, "unknown", "unknown", ""),
        ]);
        assert_eq!(found.unwrap(), Blob { digest: digest(3), bytes: 7 });
        let narrow = entry(1, "linux", "386", "");
        let wide = entry(2, "linux", "amd64", r#", "variant": "v4""#);
        let found = index(&[narrow.clone(), wide]);
        assert_eq!(found.unwrap(), Blob { digest: digest(2), bytes: 7 });
        let found = index(&[entry(3, "linux", "arm64", ""), narrow]);
        assert_eq!(found.unwrap(), Blob { digest: digest(1), bytes: 7 });
        let error = index(&[entry(1, "linux", "arm64", "")]).unwrap_err().to_string();
        assert!(error.contains("linux/arm64") && error.contains("linux/amd64"), "{error}");
    }

    #[test]
    fn what_is_no_image_is_refused() {
        for text in [
            "",
            "{}",
            r#"{"schemaVersion": 1}"#,
            r#"{"schemaVersion": 2}"#,
            r#"{"schemaVersion": 2, "manifests": 7}"#,
            r#"{"schemaVersion": 2, "config": {}, "layers": []}"#,
        ] {
            assert!(Document::parse(text.as_bytes()).is_err(), "{text}");
        }
        let blob = |kind: &str, digest: &str| {
            format!(r#"{{"mediaType": "{kind}", "size": 1, "digest": "{digest}"}}"#)
        };
        let (good, layer) = (Digest::of(b"").to_string(), "application/vnd.oci.image.layer.v1.tar");
        let manifest = |layers: &str| {
            let config = blob("application/vnd.oci.image.config.v1+json", &good);
            let text =
                format!(r#"{{"schemaVersion": 2, "config": {config}, "layers": [{layers}]}}"#);
            Manifest::parse(text.as_bytes())
        };
        assert!(manifest(&blob(layer, &good)).is_ok());
        assert!(manifest(&blob(layer, &"../".repeat(20))).is_err());
        assert!(manifest(&blob("application/wasm", &good)).is_err());
        assert!(manifest(&vec![blob(layer, &good); 128].join(",")).is_err());
        assert!(manifest(&blob(layer, &good).replace(": 1,", ": -1,")).is_err());
    }
}
