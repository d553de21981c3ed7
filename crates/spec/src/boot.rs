//! The kernel of a machine, and how it boots.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Board, Disk, Firmware, Other, Root, Spec, is_default, text};

/// A kernel, its initrd and its command line.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Boot {
    /// A bzImage, an ELF file with a PVH note or a Multiboot header, or the version of a kernel that `biv kernel` has
    /// downloaded [default: Debian's for cloud machines].
    #[serde(with = "text::option", skip_serializing_if = "is_default")]
    #[schemars(with = "Option<String>")]
    pub kernel: Option<PathBuf>,
    /// The initial RAM disk; for a Multiboot kernel its modules, as "FILE ARG...,FILE ARG...".
    #[serde(with = "text::option", skip_serializing_if = "is_default")]
    #[schemars(with = "Option<String>")]
    pub initrd: Option<PathBuf>,
    /// The directory with the kernel's modules, `lib/modules/RELEASE` or the one above [default: those of its package;
    /// for a file those that the host has of the same release, if any].
    #[serde(with = "text::option", skip_serializing_if = "is_default")]
    #[schemars(with = "Option<String>")]
    pub modules: Option<PathBuf>,
    /// The disk whose boot loader's configuration names kernel, initial RAM disk and parameters; it is the guest's
    /// first. Nothing of Bivouac's runs in the guest then.
    #[serde(skip_serializing_if = "is_default")]
    pub disk: Option<Disk>,
    /// The firmware that the machine starts, which boots one of its disks, in their order. Nothing of Bivouac's runs in
    /// the guest then.
    #[serde(skip_serializing_if = "is_default")]
    pub firmware: Option<Firmware>,
    /// The program of the root that is the guest's process 1, such as /sbin/init, by its absolute path; the arguments
    /// of `process` are its arguments [default: Bivouac's own, which runs a command].
    #[serde(with = "text::option", skip_serializing_if = "is_default")]
    #[schemars(with = "Option<String>")]
    pub init: Option<PathBuf>,
    /// Parameters that are added to the kernel's command line.
    #[serde(skip_serializing_if = "is_default")]
    pub append: Option<String>,
    /// It boots, although the cache has a snapshot of a machine of its kind.
    #[serde(skip_serializing_if = "is_default")]
    pub cold: bool,
    /// It ends when the guest reboots.
    #[serde(skip_serializing_if = "is_default")]
    pub no_reboot: bool,
    /// The default guest's parts that it uses are downloaded again, for a newer version.
    #[serde(skip_serializing_if = "is_default")]
    pub refresh: bool,
    /// Fields that this program does not know.
    #[serde(flatten)]
    pub other: Other,
}

impl Boot {
    /// What is wrong with a machine that boots from its disk, if anything is.
    fn complaint_of_disk(&self, spec: &Spec) -> Option<&'static str> {
        let disk = self.disk.as_ref()?;
        if self.names_kernel() {
            return Some(
                "a disk that is booted brings its own kernel, initial RAM disk and modules (boot)",
            );
        }
        let complaint = self.complaint_of_another_system(
            spec,
            [
                "a disk that is booted has its own process 1, and nobody in it runs a command \
                 (boot.disk, process)",
                "a disk that is booted has nobody's command, which would have a user, a directory, \
                 an environment or a signal (boot.disk, process)",
                "a disk that is booted has its own root, and mounts nothing else (boot.disk, root, \
                 mounts, caches)",
            ],
        );
        let is_xens = spec.machine.board == Board::Xen || !disk.extents.is_empty();
        complaint.or(is_xens.then_some(
            "a machine of Xen's interface boots from no disk (machine.board, boot.disk)",
        ))
    }

    /// What is wrong with a machine that has firmware of its own, if anything is.
    fn complaint_of_firmware(&self, spec: &Spec) -> Option<&'static str> {
        self.firmware.as_ref()?;
        if self.names_kernel() || self.disk.is_some() || self.append.is_some() {
            return Some(
                "firmware boots what a disk of the machine has, with its own kernel and parameters \
                 (boot.firmware, boot)",
            );
        }
        let complaint = self.complaint_of_another_system(
            spec,
            [
                "what firmware boots has its own process 1, and nobody in it runs a command \
                 (boot.firmware, process)",
                "what firmware boots has nobody's command, which would have a user, a directory, \
                 an environment or a signal (boot.firmware, process)",
                "what firmware boots has its own root, and mounts nothing else (boot.firmware, \
                 root, mounts, caches)",
            ],
        );
        complaint.or((spec.machine.board == Board::Xen).then_some(
            "a machine of Xen's interface has no firmware (machine.board, boot.firmware)",
        ))
    }

    /// Whether it names a kernel, or what belongs to one.
    fn names_kernel(&self) -> bool {
        self.kernel.is_some() || self.initrd.is_some() || self.modules.is_some()
    }

    /// What is wrong with a machine whose system is not ours, if anything is: it has a process 1 or a command, how that
    /// would run, or a root of ours. These are the complaints.
    fn complaint_of_another_system(
        &self,
        spec: &Spec,
        [process, how, root]: [&'static str; 3],
    ) -> Option<&'static str> {
        let mounts = !spec.mounts.is_empty() || !spec.caches.is_empty();
        match () {
            () if self.init.is_some() || !spec.process.args.is_empty() => Some(process),
            () if spec.process.says_how() => Some(how),
            () if !matches!(spec.root, Root::Host(_)) || mounts => Some(root),
            () => None,
        }
    }

    /// What is wrong with what a machine boots, if anything is.
    pub(crate) fn complaint(&self, spec: &Spec) -> Option<&'static str> {
        if self.initrd.is_some() && !matches!(spec.root, Root::Host(_) | Root::Disk(_)) {
            return Some("an initial RAM disk is the first root already (boot.initrd, root)");
        }
        self.complaint_of_firmware(spec)
            .or_else(|| self.complaint_of_disk(spec))
            .or_else(|| self.complaint_of_init(spec))
    }

    /// What is wrong with the process 1 of a machine, if anything is.
    fn complaint_of_init(&self, spec: &Spec) -> Option<&'static str> {
        let init = self.init.as_ref()?;
        if !init.is_absolute() {
            return Some("process 1 is named by an absolute path in the guest (boot.init)");
        }
        if spec.machine.board == Board::Xen {
            return Some(
                "a machine of Xen's interface has Bivouac's init (machine.board, boot.init)",
            );
        }
        let is_somebody = spec.process.user.is_some() || spec.process.directory.is_some();
        is_somebody.then_some("process 1 is root, and starts in / (boot.init, process)")
    }
}
