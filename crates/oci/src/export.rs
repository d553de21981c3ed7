//! Images of the store as an archive: a layout of the specification, with Docker's `manifest.json` beside it, as Docker
//! itself has it since version 25. So `docker load`, `podman load` and skopeo (`oci-archive:`, `docker-archive:`) read
//! it.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use serde_json::{Value, json};
use tar::{Builder, EntryType, Header};

use crate::layout::{self, blob_name};
use crate::reference::Name;
use crate::{Error, Image, Store};

/// Writes images to an archive; `path` is what that is called. Each is under the names with which it is given, or
/// under all of its own.
///
/// # Errors
///
/// [`Error::Write`]; [`Error::Store`].
pub fn save(
    store: &Store,
    images: &[(Image, Vec<Name>)],
    to: &mut dyn Write,
    path: &Path,
) -> Result<(), Error> {
    let failed = |error| Error::Write { path: path.to_owned(), error };
    let mut archive = Builder::new(to);
    let (mut written, mut index, mut docker) = (BTreeSet::new(), Vec::new(), Vec::new());
    let (mark, version) = layout::MARK;
    add(&mut archive, mark, version.as_bytes()).map_err(failed)?;
    for (image, names) in images {
        let names = if names.is_empty() { &image.names } else { names };
        let manifest = &image.manifest;
        let texts = [
            (image.digest, &image.text),
            (manifest.configuration.digest, &image.configuration_text),
        ];
        for (digest, text) in texts {
            if written.insert(digest) {
                add(&mut archive, &blob_name(&digest), text).map_err(failed)?;
            }
        }
        for layer in &manifest.layers {
            if written.insert(layer.digest) {
                let file = store.open_blob(&layer.digest)?;
                add_file(&mut archive, &blob_name(&layer.digest), file, layer.bytes)
                    .map_err(failed)?;
            }
        }
        index.extend(entries(image, names));
        let layers = manifest.layers.iter().map(|layer| blob_name(&layer.digest));
        docker.push(json!({
            "Config": blob_name(&manifest.configuration.digest),
            "RepoTags": names.iter().map(Name::as_str).collect::<Vec<_>>(),
            "Layers": layers.collect::<Vec<_>>(),
        }));
    }
    let index = json!({
        "schemaVersion": 2,
        "mediaType": layout::INDEX,
        "manifests": index,
    });
    for (name, text) in [("index.json", index), ("manifest.json", Value::from(docker))] {
        add(&mut archive, name, text.to_string().as_bytes()).map_err(failed)?;
    }
    archive.into_inner().and_then(|to| to.flush()).map_err(failed)
}

/// An image's entries in the index: one for each name.
fn entries(image: &Image, names: &[Name]) -> Vec<Value> {
    let entry = |annotations: Value| {
        json!({
            "mediaType": image.media_type,
            "digest": image.digest.to_string(),
            "size": image.text.len(),
            "annotations": annotations,
        })
    };
    let named = |name: &Name| {
        entry(json!({
            layout::WHOLE_NAME: name.as_str(),
            layout::NAME: name.as_str(),
        }))
    };
    match names {
        [] => vec![entry(json!({}))],
        names => names.iter().map(named).collect(),
    }
}

fn header(bytes: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(EntryType::Regular);
    header.set_size(bytes);
    header.set_mode(0o644);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header
}

fn add(archive: &mut Builder<&mut dyn Write>, name: &str, text: &[u8]) -> io::Result<()> {
    archive.append_data(&mut header(text.len() as u64), name, text)
}

fn add_file(
    archive: &mut Builder<&mut dyn Write>,
    name: &str,
    file: File,
    bytes: u64,
) -> io::Result<()> {
    use std::io::Read;
    // It was checked when it came; what is of another length now would make no archive.
    if file.metadata()?.len() != bytes {
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("{name} was changed")));
    }
    archive.append_data(&mut header(bytes), name, file.take(bytes))
}
