//! The description of a machine, before the machine exists. A command line becomes one; a snapshot
//! and a domain's record contain one; other programs hand one over as JSON.
//!
//! What rules it:
//!
//! 1. *It is data.* This crate opens no file and looks nothing up. It imports none of our crates,
//!    so that a program which describes machines links no engine.
//! 2. *A field that is left out has one meaning*, which stands on the field. So two descriptions
//!    are compared and hashed as they are, and a default is not written.
//! 3. *It grants nothing.* A stranger's description may name any file. The program that reads a
//!    description decides whether to give what it names. (`biv restore` gives what a snapshot names
//!    only if this user's own program has signed the snapshot.)
//! 4. *A newer program's description can be read.* The parser keeps unknown fields and writes them
//!    again ([`Other`]); [`Spec::unknown`] names them, so that the caller can warn the user. What
//!    cannot be ignored is an error: a device of an unknown kind, for one, and another [`VERSION`].
//! 5. *Everything has a short form* for the command line (`FILE,ro`, `8080:80`). It stands beside
//!    the type.

#![forbid(unsafe_code)]

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

mod boot;
mod cache;
mod device;
mod disk;
mod engine;
mod error;
mod extent;
mod firmware;
mod gdb;
mod hostname;
mod life;
mod machine;
mod mount;
mod name;
mod network;
mod other;
mod ports;
mod process;
mod root;
mod scheduling;
pub mod shown;
mod size;
pub mod text;
mod vif;
mod watch;

pub use boot::Boot;
pub use cache::{Cache, Usual};
pub use device::{DebugConsole, Device, Sockets};
pub use disk::{Disk, Format};
pub use engine::{Engine, UserExecution};
pub use error::Error;
pub use extent::Extent;
pub use firmware::{Firmware, Variables};
pub use gdb::{Gdb, GdbAddress};
pub use hostname::parse as parse_hostname;
pub use life::{Life, Restart, parse_label};
pub use machine::{Board, Machine, ORDINARY_SHARES};
pub use mount::Mount;
pub use name::{Error as NotAName, Name, is_plain};
pub use network::{Backend, Net, Network, Published, Tap, User, UserNetwork, check_published};
pub use other::Other;
pub use ports::Ports;
pub use process::{Process, SIGNALS};
pub use root::{Directory, DiskRoot, HostRoot, Root};
pub use scheduling::Scheduling;
pub use size::{Error as NotASize, parse as parse_size};
pub use vif::Vif;
pub use watch::{ListBlocks, TraceBlocks, Watch};

/// The version of descriptions that this code reads and writes.
pub const VERSION: u32 = 1;

/// A machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(title = "A machine of Bivouac's")]
pub struct Spec {
    /// The version of this description: 1.
    pub version: u32,
    /// Its processors and memory.
    #[serde(default, skip_serializing_if = "is_default")]
    pub machine: Machine,
    /// What it boots, and how.
    #[serde(default, skip_serializing_if = "is_default")]
    pub boot: Boot,
    /// Its file system [default: the host's, as far as the caller may read it, or busybox where the kernel cannot
    /// show that].
    #[serde(default, skip_serializing_if = "is_default")]
    pub root: Root,
    /// Further devices, in this order.
    #[serde(default, skip_serializing_if = "is_default")]
    pub devices: Vec<Device>,
    /// Directories of the host that the guest mounts besides its root.
    #[serde(default, skip_serializing_if = "is_default")]
    pub mounts: Vec<Mount>,
    /// Directories that are kept between runs, and shared by all machines that name them.
    #[serde(default, skip_serializing_if = "is_default")]
    pub caches: Vec<Cache>,
    /// Its networks: one at most so far; an empty list means no network card [default: a user-mode network if the
    /// guest has our init, else none].
    #[serde(default, skip_serializing_if = "is_default")]
    pub networks: Option<Vec<Network>>,
    /// The host name that its guest has, if that has our init: at most 64 letters, digits, "_", "-" and "." [default:
    /// what the root's /etc/hostname says].
    #[serde(default, skip_serializing_if = "is_default")]
    pub hostname: Option<String>,
    /// Its command.
    #[serde(default, skip_serializing_if = "is_default")]
    pub process: Process,
    /// Its name, and when it ends.
    #[serde(default, skip_serializing_if = "is_default")]
    pub life: Life,
    /// The host's directory in which it is started. Relative paths of this description are relative to it. The
    /// command of a machine that looks like the host starts there, and may write there [default: the caller's].
    #[serde(default, with = "text::option", skip_serializing_if = "is_default")]
    #[schemars(with = "Option<String>")]
    pub directory: Option<PathBuf>,
    /// It is a sandbox for untrusted programs: the guest may read the directory in which it is started, and
    /// nothing else of the host unless this description names it.
    #[serde(default, skip_serializing_if = "is_default")]
    pub sandbox: bool,
    /// How its code is executed.
    #[serde(default, skip_serializing_if = "is_default")]
    pub engine: Engine,
    /// Traces and statistics, for debugging and profiling. They are never recorded, and a machine that goes on
    /// from a snapshot does not have them.
    #[serde(default, skip_serializing_if = "is_default")]
    pub watch: Watch,
    /// Fields that this program does not know.
    #[serde(flatten)]
    pub other: Other,
}

impl Default for Spec {
    fn default() -> Self {
        Self {
            version: VERSION,
            machine: Machine::default(),
            boot: Boot::default(),
            root: Root::default(),
            devices: Vec::new(),
            mounts: Vec::new(),
            caches: Vec::new(),
            networks: None,
            hostname: None,
            process: Process::default(),
            life: Life::default(),
            directory: None,
            sandbox: false,
            engine: Engine::default(),
            watch: Watch::default(),
            other: Other::default(),
        }
    }
}

/// Whether a field need not be written.
pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl Spec {
    /// Reads a description and checks it ([`Self::check`]).
    ///
    /// # Errors
    ///
    /// [`Error`] says what is wrong with it.
    pub fn parse(text: &[u8]) -> Result<Self, Error> {
        let spec = Self::decode(text)?;
        spec.check()?;
        Ok(spec)
    }

    /// Reads a description that the caller checks.
    ///
    /// # Errors
    ///
    /// [`Error`], but no contradiction.
    pub fn decode(text: &[u8]) -> Result<Self, Error> {
        let version: error::Version = serde_json::from_slice(text)?;
        if version.version != VERSION {
            return Err(Error::Version(version.version));
        }
        Ok(serde_json::from_slice(text)?)
    }

    /// As text, which [`Self::parse`] reads.
    #[must_use]
    pub fn to_json(&self) -> String {
        // All keys are strings, and nothing in it can fail to be written.
        serde_json::to_string_pretty(self).unwrap_or_default()
    }

    /// The schema of that text (JSON Schema, 2020-12).
    #[must_use]
    pub fn schema() -> String {
        let schema = schemars::schema_for!(Spec);
        serde_json::to_string_pretty(&schema).unwrap_or_default()
    }

    /// Whether its parts fit together.
    ///
    /// # Errors
    ///
    /// [`Error::Contradiction`] names the parts that do not.
    pub fn check(&self) -> Result<(), Error> {
        let contradiction = |reason: &str| Err(Error::Contradiction(reason.to_owned()));
        if self.machine.processors == 0 {
            return contradiction("a machine has a processor at least (machine.processors)");
        }
        if self.machine.memory == 0 {
            return contradiction("a machine has memory (machine.memory)");
        }
        if let Some(maximum) = self.machine.maximum_memory {
            if self.machine.board != Board::Xen {
                return contradiction(
                    "only a machine of Xen's interface has a maximum of memory \
                     (machine.maximum_memory)",
                );
            }
            if maximum < self.machine.memory {
                return contradiction(
                    "a machine starts with more memory than it may have \
                     (machine.memory, machine.maximum_memory)",
                );
            }
        }
        if let Some(complaint) = self.boot.complaint(self).or(self.process.complaint()) {
            return contradiction(complaint);
        }
        self.hostname.as_deref().map_or(Ok(()), hostname::check).map_err(Error::Contradiction)?;
        self.life.check().map_err(Error::Contradiction)?;
        if self.engine.interpret && !self.engine.without.is_empty() {
            return contradiction("who interprets does without all of these (engine)");
        }
        if self.sandbox && self.opens_sandbox() {
            return contradiction(
                "a sandbox does not write to a root or a home directory, and has its filter \
                 (sandbox, root, \
                 engine.no_seccomp)",
            );
        }
        self.machine.check_scheduling()?;
        if self.machine.board == Board::Xen
            && let Some(complaint) = self.complaint_of_xen()
        {
            return contradiction(complaint);
        }
        if let Some(complaint) = self.sockets().find_map(Sockets::complaint) {
            return contradiction(complaint);
        }
        if self.sockets().count() > 1 {
            return contradiction("a machine has one virtio socket device (devices)");
        }
        let is_vif = |network: &Network| matches!(network, Network::Vif(_));
        if self.machine.board != Board::Xen && self.networks.iter().flatten().any(is_vif) {
            return contradiction(
                "only a machine of Xen's interface has a VIF (machine.board, networks)",
            );
        }
        if self.machine.board != Board::Xen && self.disks().any(|disk| !disk.extents.is_empty()) {
            return contradiction(
                "only a machine of Xen's interface has disks of extents (machine.board, extents)",
            );
        }
        if let Some(complaint) = disk::complaint_of_extents(self.disks()) {
            return contradiction(complaint);
        }
        self.root.check().and_then(|()| self.mounts.iter().try_for_each(Mount::check))?;
        self.caches.iter().try_for_each(Cache::check)?;
        network::check(self.networks.as_deref())
    }

    /// What a paravirtual machine of Xen's interface cannot have, if the description has it.
    fn complaint_of_xen(&self) -> Option<&'static str> {
        let is_disk = |device: &Device| matches!(device, Device::Disk(_));
        if !self.mounts.is_empty() || !self.caches.is_empty() {
            return Some(
                "a machine of Xen's interface mounts no directories (machine.board, mounts, \
                 caches)",
            );
        }
        if self.watch.gdb.is_some() {
            return Some(
                "a machine of Xen's interface is not debugged yet (machine.board, watch.gdb)",
            );
        }
        if !self.devices.iter().all(is_disk) {
            return Some("a machine of Xen's interface has disks only (machine.board, devices)");
        }
        match &self.root {
            Root::Host(host) if host.here => {
                Some("a machine of Xen's interface does not see the host (machine.board, root)")
            }
            _ => None,
        }
    }

    /// Whether it has what a sandbox is there to prevent, and what is easily missed.
    fn opens_sandbox(&self) -> bool {
        let is_written = match &self.root {
            Root::Directory(directory) => directory.writable,
            Root::Host(host) => host.here,
            Root::Image(_) | Root::Disk(_) | Root::Busybox => false,
        };
        is_written || self.engine.no_seccomp
    }

    /// The network that the machine shares with others, by `biv network`.
    #[must_use]
    pub fn shared_network(&self) -> Option<&Name> {
        self.networks.iter().flatten().find_map(Network::shared)
    }

    /// Names of the fields that this program does not know, with where they are.
    #[must_use]
    pub fn unknown(&self) -> Vec<String> {
        let mut names = Vec::new();
        let mut add = |place: &str, other: &Other| {
            names.extend(other.names().map(|name| format!("{place}{name}")));
        };
        add("", &self.other);
        add("machine.", &self.machine.other);
        add("machine.scheduling.", &self.machine.scheduling.other);
        add("boot.", &self.boot.other);
        add("process.", &self.process.other);
        add("life.", &self.life.other);
        add("engine.", &self.engine.other);
        add("watch.", &self.watch.other);
        self.watch.gdb.iter().for_each(|gdb| add("watch.gdb.", &gdb.other));
        self.root.other().into_iter().for_each(|other| add("root.", other));
        self.boot.disk.iter().for_each(|disk| add("boot.disk.", &disk.other));
        self.boot.firmware.iter().for_each(|it| add("boot.firmware.", &it.other));
        let variables = self.boot.firmware.iter().flat_map(|it| &it.vars);
        variables.for_each(|it| add("boot.firmware.vars.", &it.other));
        self.devices.iter().for_each(|device| add("devices.", device.other()));
        self.mounts.iter().for_each(|mount| add("mounts.", &mount.other));
        self.caches.iter().for_each(|cache| add("caches.", &cache.other));
        let networks = self.networks.iter().flatten();
        networks.for_each(|network| add("networks.", network.other()));
        names
    }

    /// All disks, in the order in which the guest counts them: the root's is the first, or the one that it boots from.
    pub fn disks(&self) -> impl Iterator<Item = &Disk> {
        let root = match &self.root {
            Root::Disk(root) => Some(&root.disk),
            _ => None,
        };
        let plugged_in = self.devices.iter().filter_map(|device| match device {
            Device::Disk(disk) => Some(disk),
            _ => None,
        });
        root.into_iter().chain(&self.boot.disk).chain(plugged_in)
    }

    /// Its virtio socket device, if it has one.
    pub fn sockets(&self) -> impl Iterator<Item = &Sockets> {
        self.devices.iter().filter_map(|device| match device {
            Device::Sockets(sockets) => Some(sockets),
            _ => None,
        })
    }

    /// Whether it has an entropy device.
    #[must_use]
    pub fn has_entropy(&self) -> bool {
        self.devices.iter().any(|device| matches!(device, Device::Entropy(_)))
    }

    /// Whether it has a port by which it ends.
    #[must_use]
    pub fn has_debug_exit(&self) -> bool {
        self.devices.iter().any(|device| matches!(device, Device::DebugExit(_)))
    }

    /// Where its debug console is written to, if it has one.
    #[must_use]
    pub fn debug_console(&self) -> Option<&DebugConsole> {
        self.devices.iter().find_map(|device| match device {
            Device::DebugConsole(console) => Some(console),
            _ => None,
        })
    }

    /// The ports of the host's that lead to it.
    pub fn published(&self) -> impl Iterator<Item = &Published> {
        self.networks.iter().flatten().flat_map(Network::published)
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::os::unix::ffi::OsStringExt;

    use super::*;

    fn parse(text: &str) -> Result<Spec, String> {
        Spec::parse(text.as_bytes()).map_err(|error| error.to_string())
    }

    #[test]
    fn what_is_not_said_is_not_written() {
        assert_eq!(parse("{\"version\": 1}"), Ok(Spec::default()));
        assert_eq!(Spec::default().to_json(), "{\n  \"version\": 1\n}");
    }

    #[test]
    fn what_a_newer_program_says_is_kept_and_named() {
        let text = r#"{
            "version": 1,
            "colour": "red",
            "machine": {"memory": "1.5G", "sockets": 2},
            "devices": [
                {"kind": "disk", "path": "a", "cache": "none"},
                {"kind": "entropy", "rate": 9}
            ],
            "mounts": [{"host": "a", "guest": "/b", "dax": true}],
            "caches": [{"name": "go", "limit": 9}],
            "networks": [{"kind": "user", "mtu": 1280}],
            "process": {"limits": []}
        }"#;
        let spec = parse(text).unwrap();
        assert_eq!(spec.machine.memory, 3 << 29);
        let unknown = [
            "colour",
            "machine.sockets",
            "process.limits",
            "devices.cache",
            "devices.rate",
            "mounts.dax",
            "caches.limit",
            "networks.mtu",
        ];
        assert_eq!(spec.unknown(), unknown);
        assert_eq!(parse(&spec.to_json()), Ok(spec));
    }

    fn check_refused(text: &str, why: &str) {
        let error = parse(text).expect_err(text);
        assert!(error.contains(why), "{text}: {error}");
    }

    fn check_all_refused(fields: &[(&str, &str)]) {
        for (field, why) in fields {
            check_refused(&format!("{{\"version\": 1, {field}}}"), why);
        }
    }

    #[test]
    fn what_boots_by_itself_is_refused_with_what_it_cannot_have() {
        check_all_refused(&[
            (r#""boot": {"disk": {"path": "a"}}, "process": {"env": ["A=b"]}"#, "environment"),
            (r#""boot": {"disk": {"path": "a"}}, "process": {"user": "u"}"#, "user"),
            (r#""boot": {"disk": {"path": "a"}}, "caches": [{"name": "go"}]"#, "caches"),
            (r#""boot": {"firmware": {"path": "a"}, "kernel": "b"}"#, "boot.firmware"),
            (r#""boot": {"firmware": {"path": "a"}}, "root": "busybox""#, "boot.firmware"),
            (r#""boot": {"firmware": {"path": "a"}}, "process": {"user": "u"}"#, "directory"),
            (r#""boot": {"firmware": {"path": "a"}}, "process": {"args": ["b"]}"#, "boot.firmware"),
            (
                r#""boot": {"firmware": {"path": "a"}}, "machine": {"board": "xen"}"#,
                "boot.firmware",
            ),
        ]);
    }

    #[test]
    fn what_cannot_be_ignored_is_refused() {
        check_refused("", "EOF");
        check_refused("{}", "version");
        check_refused("[]", "Version");
        check_refused(r#"{"version": 2}"#, "version 2");
        check_all_refused(&[
            (r#""machine": {"processors": 0}"#, "machine.processors"),
            (r#""machine": {"processors": 300}"#, "u8"),
            (r#""machine": {"memory": 0}"#, "machine.memory"),
            (r#""machine": {"memory": "lots"}"#, "not a size"),
            (r#""machine": {"board": "abacus"}"#, "abacus"),
            (r#""devices": [{"kind": "teapot"}]"#, "teapot"),
            (r#""devices": [{"kind": "sockets", "path": "a", "address": 2}]"#, "cid"),
            (r#""root": {"cloud": {}}"#, "cloud"),
            (r#""root": {"disk": {"path": "a", "partition": 0}}"#, "partitions"),
            (r#""root": {"directory": {"path": "a", "suid": true}}"#, "suid"),
            (r#""root": "busybox", "boot": {"initrd": "a"}"#, "initrd"),
            (r#""mounts": [{"host": "a", "guest": "b"}]"#, "absolute path"),
            (r#""caches": [{"name": "../a", "guest": "/b"}]"#, "invalid cache name"),
            (r#""caches": [{"name": "a"}]"#, "needs a place"),
            (r#""machine": {"board": "xen"}, "caches": [{"name": "go"}]"#, "caches"),
            (r#""networks": [{"kind": "user"}, {"kind": "user"}]"#, "one network"),
            (r#""networks": [{"kind": "user", "backend": "passt"}]"#, "passt"),
            (r#""networks": [{"kind": "tap", "name": ""}]"#, "without a name"),
            (r#""networks": [{"kind": "vif", "ip": "10.77.0.2"}]"#, "Xen"),
            (
                r#""machine": {"board": "xen"}, "networks": [{"kind": "vif", "ip": "10.77.0.1"}]"#,
                "gateway",
            ),
            (
                r#""devices":
                    [{"kind": "disk", "path": "a", "extents": [{"start": 0, "bytes": 512}]}]"#,
                "Xen",
            ),
            (
                r#""machine": {"board": "xen"}, "devices":
                    [{"kind": "disk", "path": "a", "extents": [{"start": 1, "bytes": 512}]}]"#,
                "whole sectors",
            ),
            (r#""life": {"name": "../x"}"#, "invalid domain name"),
            (r#""life": {"timeout": -1}"#, "negative"),
            (r#""life": {"timeout": 0}"#, "timeout"),
            (r#""process": {"args": ["a\u0000"]}"#, "NUL"),
            (r#""process": {"stop_signal": 65}"#, "no signal"),
            (r#""sandbox": true, "engine": {"no_seccomp": true}"#, "sandbox"),
            (
                r#""sandbox": true, "root": {"directory": {"path": "a", "writable": true}}"#,
                "sandbox",
            ),
            (r#""machine": {"board": "xen"}, "devices": [{"kind": "entropy"}]"#, "devices"),
            (r#""machine": {"board": "xen"}, "mounts": [{"host": "/a", "guest": "/b"}]"#, "mounts"),
            (r#""engine": {"interpret": true, "without": ["links"]}"#, "interpret"),
        ]);
    }

    #[test]
    fn names_of_files_need_not_be_text() {
        let odd = OsString::from_vec(b"/\xff\n".to_vec());
        let mut spec = Spec { directory: Some(odd.clone().into()), ..Spec::default() };
        spec.process.args = vec!["plain".into(), odd.clone()];
        spec.root = Root::Directory(Directory { path: odd.into(), ..Directory::default() });
        assert!(spec.to_json().contains("base64"));
        assert_eq!(parse(&spec.to_json()), Ok(spec));
    }

    /// `UPDATE=1 cargo test -p spec` writes it.
    #[test]
    fn the_published_schema_is_that_of_the_code() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/spec.schema.json");
        let schema = Spec::schema() + "\n";
        if std::env::var_os("UPDATE").is_some() {
            std::fs::write(path, &schema).unwrap();
        }
        assert_eq!(std::fs::read_to_string(path).unwrap(), schema);
    }
}
