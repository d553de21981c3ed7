//! The images of this user: a directory in the cache, `oci/`, which is itself an image layout (image-spec,
//! `image-layout.md`), so that other tools can read it.
//!
//! - `index.json` lists the images: the digests of their manifests, each with its name
//!   (`org.opencontainers.image.ref.name`). An image with several names is there several times, one without a name
//!   once.
//! - `blobs/sha256/DIGEST`: manifests, configurations and layers as they were published.
//! - `layers/DIFF_ID-N.erofs`: a layer as a guest mounts it ([`crate::layer`]). DIFF_ID is the digest of the layer,
//!   unpacked; N is the number of the form. They are made of the blobs.
//!
//! *Several processes use it at once.* Content has the name of its digest, gets it when it is whole, and is never
//! changed: who comes second finds it there. Three things need more:
//!
//! 1. *The index is written anew* by who holds the lock `index.lock`, and renamed into its place.
//! 2. *Content may not be removed between its coming and its image's.* Who adds images holds the lock `lock` with
//!    others who add some. Who removes what no image has any more must hold it alone, and leaves that to the next one
//!    if it cannot have it at once: nobody waits for a download.
//! 3. *A machine keeps the layers that it has*: they are open, and to remove a file takes nothing from who has it open.
//!
//! Nothing that is unfinished has a name, where the file system has files without one (`O_TMPFILE`); elsewhere it is in
//! `work/`, which is emptied with what nobody needs.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::image::{self, Manifest};
use crate::layout::{self, BLOBS, NAME, blob_name};
use crate::limits::{MAX_CONFIG_BYTES, MAX_MANIFEST_BYTES};
use crate::reference::{Name, Wanted};
use crate::{Error, Image};

mod adding;
mod draft;

pub use adding::Adding;
pub use draft::Draft;

/// Where it is in the cache.
const DIRECTORY: &str = "oci";

/// In it.
const LAYERS: &str = "layers";
const WORK: &str = "work";
const INDEX: &str = "index.json";

/// The number of the form of layers: those of an older `biv` are made again.
const FORM: u32 = 1;

/// See above.
#[derive(Debug, Clone)]
pub struct Store {
    root: PathBuf,
}

/// Its index.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Index {
    schema_version: u32,
    media_type: String,
    manifests: Vec<Entry>,
}

/// A manifest in it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    media_type: String,
    digest: String,
    size: u64,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    annotations: BTreeMap<String, String>,
}

impl Default for Index {
    fn default() -> Self {
        let media_type = layout::INDEX.to_owned();
        Self { schema_version: 2, media_type, manifests: Vec::new() }
    }
}

impl Entry {
    fn name(&self) -> Option<Name> {
        Name::parse(self.annotations.get(NAME)?).ok()
    }

    fn digest(&self) -> Option<Digest> {
        self.digest.parse().ok()
    }
}

/// An image in a list.
#[derive(Debug, Clone)]
pub struct Listed {
    /// Its manifest's digest.
    pub digest: Digest,
    /// What it is called.
    pub name: Option<Name>,
    /// Since when it is here.
    pub age: Duration,
    /// Bytes of its layers, as they were published.
    pub bytes: u64,
}

impl Store {
    /// This user's.
    ///
    /// # Errors
    ///
    /// [`Error::Cache`]: there is none, or somebody else may write it.
    pub fn open() -> Result<Self, Error> {
        // What is in them has the names of digests, which are not computed again each time.
        for part in [BLOBS, LAYERS] {
            provision::trusted(Path::new(DIRECTORY).join(part))?;
        }
        Ok(Self { root: provision::trusted(DIRECTORY)? })
    }

    /// That in this directory.
    #[must_use]
    pub fn at(root: PathBuf) -> Self {
        Self { root }
    }

    /// Where content is.
    fn blob_path(&self, digest: &Digest) -> PathBuf {
        self.root.join(blob_name(digest))
    }

    /// Where a layer is that is `diff_id`, unpacked.
    fn layer_path(&self, diff_id: &Digest) -> PathBuf {
        self.root.join(LAYERS).join(format!("{}-{FORM}.erofs", diff_id.hex()))
    }

    /// Opens content.
    ///
    /// # Errors
    ///
    /// [`Error::Store`].
    pub fn open_blob(&self, digest: &Digest) -> Result<File, Error> {
        let path = self.blob_path(digest);
        File::open(&path).map_err(Error::store(&path))
    }

    /// Content that is short, which is hashed again.
    fn read_blob(&self, digest: &Digest, what: &str, limit: u64) -> Result<Vec<u8>, Error> {
        let path = self.blob_path(digest);
        let mut text = Vec::new();
        let read = self.open_blob(digest)?.take(limit + 1).read_to_end(&mut text);
        read.map_err(Error::store(&path))?;
        let found = Digest::of(&text);
        match found == *digest {
            true => Ok(text),
            false => Err(Error::Digest { what: what.to_owned(), wanted: *digest, found }),
        }
    }

    fn index(&self) -> Result<Index, Error> {
        let path = self.root.join(INDEX);
        match fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Index::default()),
            Err(error) => Err(Error::store(&path)(error)),
            Ok(text) => serde_json::from_slice(&text).map_err(|error| {
                Error::store(&path)(io::Error::new(io::ErrorKind::InvalidData, error.to_string()))
            }),
        }
    }

    /// The lock of that name.
    fn lock(&self, name: &str, how: FlockOperation) -> Result<Option<File>, Error> {
        fs::create_dir_all(&self.root).map_err(Error::store(&self.root))?;
        let path = self.root.join(name);
        let file = File::options().create(true).truncate(false).write(true).open(&path);
        let file = file.map_err(Error::store(&path))?;
        match flock(&file, how) {
            Ok(()) => Ok(Some(file)),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(errno) => Err(Error::store(&path)(errno.into())),
        }
    }

    /// Changes the index.
    fn change<T>(&self, change: impl FnOnce(&mut Index) -> T) -> Result<T, Error> {
        let _lock = self.lock("index.lock", FlockOperation::LockExclusive)?;
        let mut index = self.index()?;
        let changed = change(&mut index);
        let text = serde_json::to_vec_pretty(&index);
        let text = text.map_err(|error| Error::store(&self.root)(error.into()))?;
        self.write(INDEX, &text)?;
        if !self.root.join("oci-layout").exists() {
            let (mark, version) = layout::MARK;
            self.write(mark, version.as_bytes())?;
        }
        Ok(changed)
    }

    /// Writes a file anew, whole or not at all. Only who holds the index's lock does.
    fn write(&self, name: &str, text: &[u8]) -> Result<(), Error> {
        let (new, place) = (self.root.join(format!("{name}.new")), self.root.join(name));
        let write = || {
            let mut file = File::create(&new)?;
            file.write_all(text)?;
            file.sync_all()?;
            fs::rename(&new, &place)
        };
        write().map_err(Error::store(&place))
    }

    /// The images, by name; what is no image any more is left out.
    ///
    /// # Errors
    ///
    /// [`Error::Store`].
    pub fn list(&self) -> Result<Vec<Listed>, Error> {
        let mut found = Vec::new();
        for entry in self.index()?.manifests {
            let Some(digest) = entry.digest() else { continue };
            let Ok(text) = self.read_blob(&digest, "manifest", MAX_MANIFEST_BYTES) else {
                continue;
            };
            let Ok(manifest) = Manifest::parse(&text) else { continue };
            let path = self.blob_path(&digest);
            let age = fs::metadata(path).and_then(|found| found.modified()).ok();
            let age = age.and_then(|since| since.elapsed().ok()).unwrap_or_default();
            found.push(Listed { digest, name: entry.name(), age, bytes: manifest.bytes() });
        }
        found.sort_by(|one, other| (&one.name, one.digest).cmp(&(&other.name, other.digest)));
        Ok(found)
    }

    /// The digest of the manifest of the image that a text means, if it is here.
    ///
    /// # Errors
    ///
    /// [`Error::Name`]: it means none. [`Error::Ambiguous`]; [`Error::Store`].
    fn look_up(&self, text: &str) -> Result<Option<Digest>, Error> {
        let wanted = Wanted::parse(text)?;
        let index = self.index()?;
        let named = |name: &Name| {
            let mut entries = index.manifests.iter();
            entries.find(|entry| entry.name().as_ref() == Some(name)).and_then(Entry::digest)
        };
        if let Some(digest) = wanted.names.iter().find_map(named) {
            return Ok(Some(digest));
        }
        let all: BTreeSet<_> = index.manifests.iter().filter_map(Entry::digest).collect();
        if let Some(digest) = wanted.digest {
            return Ok(all.get(&digest).copied());
        }
        let Some(beginning) = wanted.beginning else { return Ok(None) };
        let mut found = all.iter().filter(|digest| digest.hex().starts_with(&beginning));
        match (found.next(), found.next()) {
            (Some(_), Some(_)) => Err(Error::Ambiguous(text.to_owned())),
            (found, _) => Ok(found.copied()),
        }
    }

    /// The image that a text means ([`Wanted`]), if it is here.
    ///
    /// # Errors
    ///
    /// [`Error::Name`]: it means none. [`Error::Ambiguous`]; [`Error::Store`].
    pub fn find(&self, text: &str) -> Result<Option<Image>, Error> {
        let Some(digest) = self.look_up(text)? else { return Ok(None) };
        let entries = self.index()?.manifests;
        let of_image = |entry: &&Entry| entry.digest() == Some(digest);
        let names = entries.iter().filter(of_image).filter_map(Entry::name).collect();
        let kind = entries.iter().find(of_image).map(|entry| entry.media_type.clone());
        let text = self.read_blob(&digest, "manifest", MAX_MANIFEST_BYTES)?;
        let manifest = Manifest::parse(&text)?;
        let blob = manifest.configuration.digest;
        let configuration_text = self.read_blob(&blob, "configuration", MAX_CONFIG_BYTES)?;
        let configuration = image::configuration(&configuration_text, &manifest)?;
        let media_type = kind.unwrap_or_default();
        Ok(Some(Image {
            digest,
            names,
            text,
            media_type,
            manifest,
            configuration,
            configuration_text,
        }))
    }

    /// Gives an image a further name, which is taken from who had it.
    ///
    /// # Errors
    ///
    /// [`Error::NoImage`]; [`Error::Store`].
    pub fn tag(&self, text: &str, name: &Name) -> Result<(), Error> {
        let digest = self.look_up(text)?.ok_or_else(|| Error::NoImage(text.to_owned()))?;
        self.change(|index| {
            let entries = index.manifests.iter();
            let entry = entries.clone().find(|entry| entry.digest() == Some(digest)).cloned();
            if let Some(entry) = entry {
                index.name(entry, Some(name));
            }
        })
    }

    /// Removes a name, and the image with its last; all names of one that is given by its digest. Whether there was
    /// one.
    ///
    /// # Errors
    ///
    /// The same.
    pub fn remove(&self, text: &str) -> Result<bool, Error> {
        let Some(digest) = self.look_up(text)? else { return Ok(false) };
        let names = Wanted::parse(text)?.names;
        self.change(|index| {
            let is_named = |entry: &Entry| entry.name().is_some_and(|name| names.contains(&name));
            match index.manifests.iter().position(|it| it.digest() == Some(digest) && is_named(it))
            {
                Some(at) => drop(index.manifests.remove(at)),
                None => index.manifests.retain(|entry| entry.digest() != Some(digest)),
            }
        })?;
        self.collect()?;
        Ok(true)
    }

    /// Removes the images without names, and what no image has; how many images those were.
    ///
    /// # Errors
    ///
    /// [`Error::Store`].
    pub fn prune(&self) -> Result<usize, Error> {
        let removed = self.change(|index| {
            let before = index.manifests.len();
            index.manifests.retain(|entry| entry.name().is_some());
            before - index.manifests.len()
        })?;
        self.collect()?;
        Ok(removed)
    }

    /// Removes what no image has, unless somebody adds one.
    fn collect(&self) -> Result<(), Error> {
        let lock = self.lock("lock", FlockOperation::NonBlockingLockExclusive)?;
        let Some(_lock) = lock else { return Ok(()) };
        let mut kept = BTreeSet::new();
        for digest in self.index()?.manifests.iter().filter_map(Entry::digest) {
            kept.insert(digest.hex());
            let text = self.read_blob(&digest, "manifest", MAX_MANIFEST_BYTES)?;
            let manifest = Manifest::parse(&text)?;
            kept.insert(manifest.configuration.digest.hex());
            kept.extend(manifest.layers.iter().map(|layer| layer.digest.hex()));
            let blob = manifest.configuration.digest;
            let text = self.read_blob(&blob, "configuration", MAX_CONFIG_BYTES)?;
            let layers = image::diff_ids(&image::configuration(&text, &manifest)?)?;
            kept.extend(layers.iter().map(|layer| format!("{}-{FORM}.erofs", layer.hex())));
        }
        for directory in [BLOBS, LAYERS, WORK] {
            let directory = self.root.join(directory);
            for entry in fs::read_dir(&directory).into_iter().flatten() {
                let entry = entry.map_err(Error::store(&directory))?;
                if !entry.file_name().to_str().is_some_and(|name| kept.contains(name)) {
                    fs::remove_file(entry.path()).map_err(Error::store(&entry.path()))?;
                }
            }
        }
        Ok(())
    }

    /// Begins to add images.
    ///
    /// # Errors
    ///
    /// [`Error::Store`].
    pub fn add(&self) -> Result<Adding<'_>, Error> {
        let lock = self.lock("lock", FlockOperation::LockShared)?;
        for part in [BLOBS, LAYERS] {
            let part = self.root.join(part);
            fs::create_dir_all(&part).map_err(Error::store(&part))?;
        }
        Ok(Adding::new(self, lock))
    }

    /// The layers of an image as file systems, the lowest first; those are made that are not there.
    ///
    /// # Errors
    ///
    /// [`Error::Layer`]; [`Error::Store`].
    pub fn layers(&self, image: &Image) -> Result<Vec<PathBuf>, Error> {
        let ids = image::diff_ids(&image.configuration)?;
        if ids.iter().any(|id| !self.layer_path(id).exists()) {
            let adding = self.add()?;
            for (blob, id) in image.manifest.layers.iter().zip(&ids) {
                adding.convert(blob, id)?;
            }
        }
        Ok(ids.iter().map(|id| self.layer_path(id)).collect())
    }
}

impl Index {
    /// Has a manifest under that name, or under none; who had the name loses it.
    fn name(&mut self, mut entry: Entry, name: Option<&Name>) {
        for other in &mut self.manifests {
            if name.is_some() && other.name().as_ref() == name {
                other.annotations.clear();
            }
        }
        let annotation = |name: &Name| (NAME.to_owned(), name.to_string());
        entry.annotations = name.map(annotation).into_iter().collect();
        self.manifests.push(entry);
        // One is there without a name only if it has none.
        let is_named = |entry: &&Entry| !entry.annotations.is_empty();
        let named = self.manifests.iter().filter(is_named).map(|entry| entry.digest.clone());
        let mut seen: BTreeSet<_> = named.collect();
        self.manifests.retain(|entry| is_named(&entry) || seen.insert(entry.digest.clone()));
    }
}
