//! Images made by hand.

use std::fs;
use std::io::Write;
use std::path::Path;

use oci::Digest;
use serde_json::json;
use tar::{Builder, EntryType, Header};

/// A layer as it is published, and what it is unpacked.
#[derive(Clone)]
pub struct Layer {
    pub bytes: Vec<u8>,
    pub diff_id: Digest,
    kind: &'static str,
}

impl Layer {
    pub fn plain(tar: Vec<u8>) -> Self {
        Self {
            diff_id: Digest::of(&tar),
            bytes: tar,
            kind: "application/vnd.oci.image.layer.v1.tar",
        }
    }

    pub fn gzip(tar: Vec<u8>) -> Self {
        let kind = "application/vnd.oci.image.layer.v1.tar+gzip";
        Self { diff_id: Digest::of(&tar), bytes: gzip(&tar), kind }
    }
}

pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut writer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    writer.write_all(bytes).unwrap();
    writer.finish().unwrap()
}

/// An archive with these files; their names are written as they are.
pub fn tar(files: &[(&str, &str)]) -> Vec<u8> {
    let mut archive = Builder::new(Vec::new());
    for (path, text) in files {
        let mut header = Header::new_gnu();
        header.set_entry_type(EntryType::Regular);
        header.set_mode(0o644);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(0);
        header.set_size(text.len() as u64);
        header.as_old_mut().name[..path.len()].copy_from_slice(path.as_bytes());
        header.set_cksum();
        archive.append(&header, text.as_bytes()).unwrap();
    }
    archive.into_inner().unwrap()
}

fn configuration(layers: &[Layer]) -> String {
    let ids: Vec<_> = layers.iter().map(|layer| layer.diff_id.to_string()).collect();
    json!({
        "architecture": "amd64",
        "os": "linux",
        "config": { "Entrypoint": ["/entry"], "Cmd": ["x"], "Env": ["A=1"] },
        "rootfs": { "type": "layers", "diff_ids": ids },
    })
    .to_string()
}

/// A layout with one image.
pub struct Layout {
    pub configuration: Vec<u8>,
    pub manifest: Vec<u8>,
    pub layers: Vec<Digest>,
    blobs: Vec<Vec<u8>>,
    made_of: Vec<Layer>,
    name: Option<String>,
}

impl Layout {
    pub fn new(layers: &[Layer]) -> Self {
        Self::with(layers, configuration(layers))
    }

    fn with(layers: &[Layer], configuration: String) -> Self {
        let configuration = configuration.into_bytes();
        let entry = |kind: &str, bytes: &[u8]| {
            let digest = Digest::of(bytes).to_string();
            json!({ "mediaType": kind, "digest": digest, "size": bytes.len() })
        };
        let entries: Vec<_> = layers.iter().map(|layer| entry(layer.kind, &layer.bytes)).collect();
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": entry("application/vnd.oci.image.config.v1+json", &configuration),
            "layers": entries,
        });
        Self {
            configuration,
            manifest: manifest.to_string().into_bytes(),
            layers: layers.iter().map(|layer| Digest::of(&layer.bytes)).collect(),
            blobs: layers.iter().map(|layer| layer.bytes.clone()).collect(),
            made_of: layers.to_vec(),
            name: None,
        }
    }

    /// With a name.
    pub fn named(self, name: &str) -> Self {
        Self { name: Some(name.to_owned()), ..self }
    }

    /// With another configuration.
    pub fn changed(self, change: impl FnOnce(String) -> String) -> Self {
        let text = String::from_utf8(self.configuration).unwrap();
        Self::with(&self.made_of, change(text))
    }

    /// Writes it to a directory, in the place of another.
    pub fn write(&self, to: &Path) {
        let _ = fs::remove_dir_all(to);
        let blobs = to.join("blobs/sha256");
        fs::create_dir_all(&blobs).unwrap();
        for blob in self.blobs.iter().chain([&self.manifest, &self.configuration]) {
            fs::write(blobs.join(Digest::of(blob).hex()), blob).unwrap();
        }
        let name =
            self.name.iter().map(|name| ("org.opencontainers.image.ref.name".into(), json!(name)));
        let annotations: serde_json::Map<_, _> = name.collect();
        let index = json!({
            "schemaVersion": 2,
            "manifests": [{
                "mediaType": "application/vnd.oci.image.manifest.v1+json",
                "digest": Digest::of(&self.manifest).to_string(),
                "size": self.manifest.len(),
                "annotations": annotations,
            }],
        });
        fs::write(to.join("index.json"), index.to_string()).unwrap();
        fs::write(to.join("oci-layout"), "{\"imageLayoutVersion\": \"1.0.0\"}").unwrap();
    }
}

/// What `docker save` wrote before version 25: with links where a layer is there already.
pub fn docker_archive(layers: &[Layer], names: &[&str]) -> Vec<u8> {
    let mut archive = Builder::new(Vec::new());
    let mut header = Header::new_gnu();
    header.set_mode(0o644);
    let mut add = |path: &str, bytes: &[u8]| {
        header.set_size(bytes.len() as u64);
        archive.append_data(&mut header, path, bytes).unwrap();
    };
    let text = configuration(layers);
    add("abc.json", text.as_bytes());
    for (number, layer) in layers.iter().enumerate() {
        add(&format!("{number}/data.tar"), &layer.bytes);
    }
    let paths: Vec<_> = (0..layers.len()).map(|number| format!("{number}/layer.tar")).collect();
    let manifest = json!([{ "Config": "abc.json", "RepoTags": names, "Layers": paths }]);
    add("manifest.json", manifest.to_string().as_bytes());
    for number in 0..layers.len() {
        let mut header = Header::new_gnu();
        header.set_entry_type(EntryType::Symlink);
        header.set_size(0);
        let target = format!("../{number}/data.tar");
        archive.append_link(&mut header, format!("{number}/layer.tar"), target).unwrap();
    }
    archive.into_inner().unwrap()
}
