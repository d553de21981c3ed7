//! An image made by hand, as an archive of Docker's: busybox in three layers.

use std::fs;
use std::path::Path;

use oci::Digest;
use serde_json::{Value, json};
use tar::{Builder, EntryType, Header};

/// What an image says that is about commands.
pub fn says() -> Value {
    json!({
        "Entrypoint": ["/entry"],
        "Cmd": ["default"],
        "Env": ["PATH=/opt:/bin", "GREETING=hello"],
        "User": "web",
        "WorkingDir": "/srv",
        "ExposedPorts": { "8080/tcp": {}, "5353/udp": {} },
    })
}

/// A layer that is being made.
pub struct Layer(Builder<Vec<u8>>);

impl Layer {
    pub fn new() -> Self {
        Self(Builder::new(Vec::new()))
    }

    fn add(
        mut self,
        path: &str,
        kind: EntryType,
        mode: u32,
        owner: (u64, u64),
        data: &[u8],
    ) -> Self {
        let mut header = Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_uid(owner.0);
        header.set_gid(owner.1);
        header.set_mtime(1_700_000_000);
        header.set_size(data.len() as u64);
        self.0.append_data(&mut header, path, data).expect("room");
        self
    }

    pub fn file(self, path: &str, mode: u32, data: &[u8]) -> Self {
        self.add(path, EntryType::Regular, mode, (0, 0), data)
    }

    pub fn directory(self, path: &str, mode: u32, owner: (u64, u64)) -> Self {
        self.add(path, EntryType::Directory, mode, owner, b"")
    }

    pub fn link(mut self, path: &str, target: &str) -> Self {
        let mut header = Header::new_gnu();
        header.set_entry_type(EntryType::Symlink);
        header.set_mode(0o777);
        header.set_size(0);
        self.0.append_link(&mut header, path, target).expect("room");
        self
    }

    pub fn owned(self, path: &str, owner: (u64, u64), data: &[u8]) -> Self {
        self.add(path, EntryType::Regular, 0o640, owner, data)
    }

    pub fn finish(self) -> Vec<u8> {
        self.0.into_inner().expect("room")
    }
}

/// What everything needs.
pub fn base(busybox: &Path) -> Vec<u8> {
    let users = b"root:x:0:0:root:/root:/bin/sh\nweb:x:1000:1001:web:/srv:/bin/sh\n";
    let groups = b"root:x:0:\nwww:x:1001:\nextra:x:77:web\n";
    let mut layer = Layer::new()
        .directory("bin", 0o755, (0, 0))
        .file("bin/busybox", 0o755, &fs::read(busybox).expect("busybox is there"))
        .directory("etc", 0o755, (0, 0))
        .file("etc/passwd", 0o644, users)
        .file("etc/group", 0o644, groups)
        .owned("etc/gone", (0, 0), b"x")
        .directory("srv", 0o755, (1000, 1001))
        .owned("srv/own", (1000, 1001), b"mine")
        .directory("hidden", 0o755, (0, 0))
        .file("hidden/below", 0o644, b"x");
    for applet in ["sh", "cat", "echo", "id", "ls", "pwd", "sleep", "stat", "touch", "true"] {
        layer = layer.link(&format!("bin/{applet}"), "busybox");
    }
    layer.finish()
}

/// What is over that: something is gone, something is new.
pub fn middle() -> Vec<u8> {
    Layer::new()
        .directory("etc", 0o755, (0, 0))
        .file("etc/.wh.gone", 0o644, b"")
        .directory("hidden", 0o711, (3, 4))
        .file("hidden/.wh..wh..opq", 0o644, b"")
        .file("hidden/new", 0o644, b"y")
        .finish()
}

/// The entry point: says what there is.
pub fn top() -> Vec<u8> {
    let script = b"#!/bin/sh\necho \"$0 $*\" $(id -u):$(id -g):$(id -G) $(pwd) $GREETING $HOME\n";
    Layer::new().file("entry", 0o755, script).finish()
}

/// Writes an archive as `docker save` does.
pub fn write(to: &Path, names: &[&str], layers: &[Vec<u8>], says: &Value) {
    let ids: Vec<_> = layers.iter().map(|layer| Digest::of(layer).to_string()).collect();
    let configuration = json!({
        "architecture": "amd64",
        "os": "linux",
        "config": says,
        "rootfs": { "type": "layers", "diff_ids": ids },
    });
    let paths: Vec<_> = (0..layers.len()).map(|number| format!("{number}.tar")).collect();
    let manifest = json!([{ "Config": "config.json", "RepoTags": names, "Layers": paths }]);
    let mut archive = Builder::new(fs::File::create(to).expect("room"));
    let mut header = Header::new_gnu();
    header.set_mode(0o644);
    let mut add = |path: &str, bytes: &[u8]| {
        header.set_size(bytes.len() as u64);
        archive.append_data(&mut header, path, bytes).expect("room");
    };
    add("config.json", configuration.to_string().as_bytes());
    add("manifest.json", manifest.to_string().as_bytes());
    for (path, layer) in paths.iter().zip(layers) {
        add(path, layer);
    }
    archive.finish().expect("room");
}
