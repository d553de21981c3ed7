//! Images from directories and archives into the store: layouts of the specification, and what `docker save` writes.
//! (What Docker writes since version 25 is both.)

use std::collections::BTreeMap;

use oci_spec::image::{Descriptor, ImageIndex};
use serde::Deserialize;
use serde_json::json;

use crate::bundle::Bundle;
use crate::compression::Compression;
use crate::image::{self, Blob, Document, Manifest};
use crate::layout::{self, MANIFEST, NAME, WHOLE_NAME, blob_name};
use crate::limits::{MAX_CONFIG_BYTES, MAX_INDEX_DEPTH, MAX_MANIFEST_BYTES, MAX_MANIFESTS};
use crate::reference::Name;
use crate::store::Adding;
use crate::{Digest, Error};

/// An image that has been added.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loaded {
    /// Its manifest's digest.
    pub digest: Digest,
    /// What it is called.
    pub names: Vec<Name>,
}

impl Loaded {
    /// What it is meant by.
    #[must_use]
    pub fn name(&self) -> String {
        self.names.first().map_or_else(|| self.digest.to_string(), Name::to_string)
    }
}

/// An image of a directory or archive.
struct Found {
    /// What it is called there.
    label: Option<String>,
    names: Vec<Name>,
    what: What,
}

/// How it is described there.
enum What {
    /// By a manifest or an index.
    Document(Blob, String),
    /// In Docker's way, by the names of files.
    Files(DockerImage),
}

/// An entry of Docker's `manifest.json`.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct DockerImage {
    config: String,
    #[serde(default)]
    repo_tags: Option<Vec<String>>,
    layers: Vec<String>,
}

/// Adds the images of a directory or archive to the store: the one that `wanted` names, or all.
///
/// # Errors
///
/// There is none ([`Error::WhichImage`]), or one of them cannot be used.
pub fn load(
    adding: &Adding<'_>,
    bundle: &Bundle,
    wanted: Option<&str>,
) -> Result<Vec<Loaded>, Error> {
    let found = find(bundle)?;
    let chosen = chosen(&found, bundle, wanted)?;
    chosen.into_iter().map(|found| found.add(adding, bundle)).collect()
}

/// Adds one image of a directory or archive.
///
/// # Errors
///
/// The same; [`Error::WhichImage`] also if there are several.
pub fn load_one(
    adding: &Adding<'_>,
    bundle: &Bundle,
    wanted: Option<&str>,
) -> Result<Loaded, Error> {
    let found = find(bundle)?;
    match &chosen(&found, bundle, wanted)?[..] {
        [first, rest @ ..] if rest.is_empty() || wanted.is_some() => first.add(adding, bundle),
        _ => Err(which(&found, bundle)),
    }
}

/// Those that `wanted` names, or all; one at least.
fn chosen<'a>(
    found: &'a [Found],
    bundle: &Bundle,
    wanted: Option<&str>,
) -> Result<Vec<&'a Found>, Error> {
    let is_wanted = |it: &&Found| wanted.is_none_or(|wanted| it.is_called(wanted));
    let chosen: Vec<_> = found.iter().filter(is_wanted).collect();
    if chosen.is_empty() { Err(which(found, bundle)) } else { Ok(chosen) }
}

/// What is said of a place in which an image was not found.
fn which(found: &[Found], bundle: &Bundle) -> Error {
    let labels = found.iter().map(|it| it.label.as_deref().unwrap_or("one without a name"));
    let labels = labels.take(20).collect::<Vec<_>>().join(", ");
    let found = if labels.is_empty() { "no image".to_owned() } else { labels };
    Error::WhichImage { place: bundle.path().display().to_string(), found }
}

fn find(bundle: &Bundle) -> Result<Vec<Found>, Error> {
    if let Some(text) = bundle.text("index.json", MAX_MANIFEST_BYTES)? {
        return of_layout(bundle, &text);
    }
    let Some(text) = bundle.text("manifest.json", MAX_MANIFEST_BYTES)? else {
        let found = "neither an index.json nor a manifest.json".to_owned();
        return Err(Error::WhichImage { place: bundle.path().display().to_string(), found });
    };
    let images: Vec<DockerImage> = serde_json::from_slice(&text)
        .map_err(|error| Error::Json { what: "manifest.json", error: error.to_string() })?;
    if images.len() > MAX_MANIFESTS {
        return Err(Error::Unsupported("it has too many images".to_owned()));
    }
    let found = images.into_iter().map(|image| {
        let tags = image.repo_tags.clone().unwrap_or_default();
        let names = tags.iter().filter_map(|tag| Name::parse(tag).ok()).collect();
        Found { label: tags.first().cloned(), names, what: What::Files(image) }
    });
    Ok(found.collect())
}

fn of_layout(bundle: &Bundle, text: &[u8]) -> Result<Vec<Found>, Error> {
    let index: ImageIndex = serde_json::from_slice(text)
        .map_err(|error| Error::Json { what: "index.json", error: error.to_string() })?;
    if index.manifests().len() > MAX_MANIFESTS {
        return Err(Error::Unsupported("it has too many images".to_owned()));
    }
    // An image with several names is there several times.
    let mut found: BTreeMap<String, Found> = BTreeMap::new();
    for entry in index.manifests() {
        let blob = Blob { digest: entry.digest().to_string().parse()?, bytes: entry.size() };
        let (label, name) = name_of(bundle, entry);
        let new = || Found {
            label,
            names: Vec::new(),
            what: What::Document(blob, entry.media_type().to_string()),
        };
        let image = found.entry(entry.digest().to_string()).or_insert_with(new);
        image.names.extend(name);
    }
    Ok(found.into_values().collect())
}

/// What an image of a layout is called there, and here.
fn name_of(bundle: &Bundle, entry: &Descriptor) -> (Option<String>, Option<Name>) {
    let annotation =
        |name| entry.annotations().as_ref().and_then(|annotations| annotations.get(name));
    let label = annotation(NAME).cloned();
    if let Some(name) = annotation(WHOLE_NAME).and_then(|name| Name::parse(name).ok()) {
        return (label, Some(name));
    }
    let file = bundle.path().file_stem().unwrap_or_default().to_string_lossy();
    let name = match label.as_deref() {
        Some(label) if label.contains(['/', ':']) => Name::parse(label).ok(),
        Some(tag) => Name::local(&file, tag),
        None => Name::local(&file, "latest"),
    };
    (label, name)
}

impl Found {
    /// Whether that is what it is called, there or in full.
    fn is_called(&self, wanted: &str) -> bool {
        let name = Name::parse(wanted).ok();
        self.label.as_deref() == Some(wanted) || name.is_some_and(|name| self.names.contains(&name))
    }

    fn add(&self, adding: &Adding<'_>, bundle: &Bundle) -> Result<Loaded, Error> {
        let digest = match &self.what {
            What::Document(blob, media_type) => {
                let (text, media_type) = resolve(bundle, blob.clone(), media_type.clone())?;
                let manifest = Manifest::parse(&text)?;
                adding.check(&manifest)?;
                for part in [&manifest.configuration].into_iter().chain(&manifest.layers) {
                    add_blob(adding, bundle, part)?;
                }
                adding.image(&text, &media_type, &self.names)?
            }
            What::Files(image) => add_files(adding, bundle, image, &self.names)?,
        };
        Ok(Loaded { digest, names: self.names.clone() })
    }
}

/// The manifest that a document is, or that an index has for our machines, with its type.
fn resolve(
    bundle: &Bundle,
    mut blob: Blob,
    mut media_type: String,
) -> Result<(Vec<u8>, String), Error> {
    for _ in 0..MAX_INDEX_DEPTH {
        let name = blob_name(&blob.digest);
        let text = bundle.text(&name, MAX_MANIFEST_BYTES)?;
        let text = text.ok_or(Error::Missing(name))?;
        let found = Digest::of(&text);
        if found != blob.digest {
            let what = "its manifest".to_owned();
            return Err(Error::Digest { what, wanted: blob.digest, found });
        }
        match Document::parse(&text)? {
            Document::Manifest(_) => return Ok((text, media_type)),
            Document::Index(index) => {
                blob = image::choose(&index)?;
                media_type = MANIFEST.to_owned();
            }
        }
    }
    Err(Error::Unsupported("its indexes lead to indexes".to_owned()))
}

fn add_blob(adding: &Adding<'_>, bundle: &Bundle, blob: &Blob) -> Result<(), Error> {
    let name = blob_name(&blob.digest);
    if adding.has(blob) {
        return Ok(());
    }
    let (mut file, _) = bundle.file(&name)?.ok_or(Error::Missing(name))?;
    adding.blob(&mut *file, blob, &|error| Error::read(bundle.path())(error))
}

/// Adds an image that is described in Docker's way: it gets a manifest, always the same.
fn add_files(
    adding: &Adding<'_>,
    bundle: &Bundle,
    image: &DockerImage,
    names: &[Name],
) -> Result<Digest, Error> {
    let failed = |error| Error::read(bundle.path())(error);
    let configuration = bundle.text(&image.config, MAX_CONFIG_BYTES)?;
    let configuration = configuration.ok_or_else(|| Error::Missing(image.config.clone()))?;
    let configuration = adding.text(&configuration)?;
    let mut layers = Vec::new();
    for name in &image.layers {
        let (mut file, _) = bundle.file(name)?.ok_or_else(|| Error::Missing(name.clone()))?;
        let blob = adding.unknown_blob(&mut *file, &failed)?;
        let path = adding.path(&blob.digest);
        let mut start = [0; 4];
        let read = std::fs::File::open(&path).and_then(|file| {
            let end = (blob.bytes as usize).min(start.len());
            std::os::unix::fs::FileExt::read_exact_at(&file, &mut start[..end], 0)
        });
        read.map_err(Error::store(&path))?;
        layers.push(json!({
            "mediaType": Compression::of(&start).media_type(),
            "digest": blob.digest.to_string(),
            "size": blob.bytes,
        }));
    }
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": {
            "mediaType": layout::CONFIGURATION,
            "digest": configuration.digest.to_string(),
            "size": configuration.bytes,
        },
        "layers": layers,
    });
    adding.image(manifest.to_string().as_bytes(), MANIFEST, names)
}
