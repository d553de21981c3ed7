//! Adding images to the store: first all that an image has, then the image.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::PathBuf;

use super::{Draft, Entry, LAYERS, Store};
use crate::compression;
use crate::digest::{Digest, Hashing};
use crate::image::{self, Blob, Manifest};
use crate::layer;
use crate::layout::BLOBS;
use crate::limits::{BUFFER_BYTES, MAX_CONFIG_BYTES, MAX_LAYER_BYTES, MAX_MANIFEST_BYTES};
use crate::reference::Name;
use crate::{Error, entries};

/// See above. While there is one, nothing is removed that no image has.
pub struct Adding<'a> {
    store: &'a Store,
    _lock: Option<File>,
}

/// How long something is, in words.
fn bytes(count: u64) -> String {
    format!("{count} bytes")
}

impl<'a> Adding<'a> {
    /// With the lock that is shared with others who add images.
    pub(super) fn new(store: &'a Store, lock: Option<File>) -> Self {
        Self { store, _lock: lock }
    }

    /// Whether some content is here.
    #[must_use]
    pub fn has(&self, blob: &Blob) -> bool {
        let found = fs::metadata(self.store.blob_path(&blob.digest));
        found.is_ok_and(|found| found.is_file() && found.len() == blob.bytes)
    }

    /// A file for content that comes piece by piece.
    ///
    /// # Errors
    ///
    /// [`Error::Store`].
    pub fn draft(&self) -> Result<Draft, Error> {
        let directory = self.store.root.join(BLOBS);
        Draft::new(&self.store.root, &directory).map_err(Error::store(&directory))
    }

    /// Keeps what has come, if it is what it was to be.
    ///
    /// # Errors
    ///
    /// [`Error::Digest`]; [`Error::Size`]; [`Error::Store`].
    pub fn keep(&self, draft: Draft, blob: &Blob) -> Result<(), Error> {
        let (digest, length, finished) = draft.finish();
        let what = blob.digest.to_string();
        if length != blob.bytes {
            return Err(Error::Size { what, found: bytes(length), wanted: bytes(blob.bytes) });
        }
        if digest != blob.digest {
            return Err(Error::Digest { what, wanted: blob.digest, found: digest });
        }
        let place = self.store.blob_path(&digest);
        finished.keep(&place).map_err(Error::store(&place))
    }

    /// Adds content from a stream, unless it is here.
    ///
    /// # Errors
    ///
    /// The same, and `failed` for the stream.
    pub fn blob(
        &self,
        stream: &mut dyn Read,
        blob: &Blob,
        failed: &dyn Fn(io::Error) -> Error,
    ) -> Result<(), Error> {
        if self.has(blob) {
            return Ok(());
        }
        let mut draft = self.draft()?;
        self.copy(&mut stream.take(blob.bytes.saturating_add(1)), &mut draft, failed)?;
        self.keep(draft, blob)
    }

    /// Adds content whose digest nobody has said.
    ///
    /// # Errors
    ///
    /// The same.
    pub fn unknown_blob(
        &self,
        stream: &mut dyn Read,
        failed: &dyn Fn(io::Error) -> Error,
    ) -> Result<Blob, Error> {
        let mut draft = self.draft()?;
        self.copy(&mut stream.take(MAX_LAYER_BYTES + 1), &mut draft, failed)?;
        let (digest, length, finished) = draft.finish();
        if length > MAX_LAYER_BYTES {
            let (found, wanted) = (bytes(length), bytes(MAX_LAYER_BYTES));
            return Err(Error::Size { what: "a layer".to_owned(), found, wanted });
        }
        let place = self.store.blob_path(&digest);
        finished.keep(&place).map_err(Error::store(&place))?;
        Ok(Blob { digest, bytes: length })
    }

    fn copy(
        &self,
        from: &mut dyn Read,
        to: &mut Draft,
        failed: &dyn Fn(io::Error) -> Error,
    ) -> Result<(), Error> {
        let mut buffer = vec![0; BUFFER_BYTES];
        loop {
            match from.read(&mut buffer) {
                Ok(0) => return Ok(()),
                Ok(read) => {
                    to.write_all(&buffer[..read]).map_err(Error::store(&self.store.root))?
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(failed(error)),
            }
        }
    }

    /// Adds what is in memory.
    ///
    /// # Errors
    ///
    /// [`Error::Store`].
    pub fn text(&self, text: &[u8]) -> Result<Blob, Error> {
        let blob = Blob { digest: Digest::of(text), bytes: text.len() as u64 };
        self.blob(&mut &text[..], &blob, &Error::store_of(&self.store.root))?;
        Ok(blob)
    }

    /// Makes a file system of a layer that is here, unless there is one: `diff_id` is its digest, unpacked.
    ///
    /// # Errors
    ///
    /// [`Error::Layer`]; [`Error::Digest`]; [`Error::Store`].
    pub fn convert(&self, blob: &Blob, diff_id: &Digest) -> Result<(), Error> {
        let place = self.store.layer_path(diff_id);
        if place.exists() {
            return Ok(());
        }
        let failed = |error| Error::Layer { digest: blob.digest, error };
        let read = |error| failed(layer::Error::Archive(entries::Error::Read(error)));
        let packed = self.store.open_blob(&blob.digest)?;
        let directory = self.store.root.join(LAYERS);
        let draft = Draft::new(&self.store.root, &directory).map_err(Error::store(&directory))?;
        let mut unpacked = Hashing::new(compression::unpack(packed).map_err(read)?);
        layer::convert(&mut unpacked, draft.file()).map_err(failed)?;
        let (found, _) = unpacked.finish();
        if found != *diff_id {
            let what = format!("layer {}, unpacked,", blob.digest);
            return Err(Error::Digest { what, wanted: *diff_id, found });
        }
        let (_, _, finished) = draft.finish();
        finished.keep(&place).map_err(Error::store(&place))
    }

    /// Checks what is known of an image before its layers are here.
    ///
    /// # Errors
    ///
    /// [`Error::Size`]: something is larger than it may be.
    pub fn check(&self, manifest: &Manifest) -> Result<(), Error> {
        let configuration = [(&manifest.configuration, MAX_CONFIG_BYTES, "its configuration")];
        let layers = manifest.layers.iter().map(|layer| (layer, MAX_LAYER_BYTES, "a layer"));
        for (blob, limit, what) in configuration.into_iter().chain(layers) {
            if blob.bytes > limit {
                let (found, wanted) = (bytes(blob.bytes), format!("{limit} at most"));
                return Err(Error::Size { what: what.to_owned(), found, wanted });
            }
        }
        Ok(())
    }

    /// Adds an image whose configuration and layers are here, under these names, or under none; its layers become file
    /// systems.
    ///
    /// # Errors
    ///
    /// It is no image that a machine can have, or something of it is missing; [`Error::Store`].
    pub fn image(&self, text: &[u8], media_type: &str, names: &[Name]) -> Result<Digest, Error> {
        let manifest = Manifest::parse(text)?;
        self.check(&manifest)?;
        if text.len() as u64 > MAX_MANIFEST_BYTES {
            let (found, wanted) = (bytes(text.len() as u64), bytes(MAX_MANIFEST_BYTES));
            return Err(Error::Size { what: "its manifest".to_owned(), found, wanted });
        }
        let blob = &manifest.configuration.digest;
        let configuration = self.store.read_blob(blob, "configuration", MAX_CONFIG_BYTES)?;
        let ids = image::diff_ids(&image::configuration(&configuration, &manifest)?)?;
        for (layer, id) in manifest.layers.iter().zip(&ids) {
            self.convert(layer, id)?;
        }
        let blob = self.text(text)?;
        let entry = Entry {
            media_type: media_type.to_owned(),
            digest: blob.digest.to_string(),
            size: blob.bytes,
            annotations: Default::default(),
        };
        self.store.change(|index| match names {
            [] => index.name(entry, None),
            names => names.iter().for_each(|name| index.name(entry.clone(), Some(name))),
        })?;
        Ok(blob.digest)
    }

    /// Where some content is, for who reads it.
    #[must_use]
    pub fn path(&self, digest: &Digest) -> PathBuf {
        self.store.blob_path(digest)
    }
}
