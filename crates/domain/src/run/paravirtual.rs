//! Paravirtual machines, by Xen's interface (`--xen`): what is different about them from a PC.
//!
//! There is no PCI bus, so there are no virtio devices. The console is the domain's first one, and the init's channel
//! is the second. Nothing shares the host's files, so that a root is packed into the guest's memory, or on a disk. An
//! image is a disk here, too, but its disk has no serial number: init is told what its kernel calls it.

use spec::{Board, DiskRoot, Spec};

use super::image_disk;

/// The modules that drive a paravirtual machine's disks and network card.
pub const DISK_DRIVERS: [&str; 1] = ["xen-blkfront"];
pub const NETWORK_DRIVERS: [&str; 1] = ["xen-netfront"];

/// What its kernel needs for a root of which the file systems are on disks.
pub const ON_DISKS: &[&str] = &["xen-blkfront", image_disk::FILE_SYSTEM, image_disk::OVERLAY];

/// Whether a machine is one.
pub fn is_paravirtual(spec: &Spec) -> bool {
    spec.machine.board == Board::Xen
}

/// Words of the kernel's command line: the console that it has instead of `console`, and where init finds us.
pub struct Words {
    /// The kernel's console.
    pub console: &'static str,
    /// Where the guest's init finds us.
    pub channel: &'static str,
    /// The greatest packet of a card that does not say it.
    pub mtu: &'static str,
}

/// Those of a machine, which has a network card or not.
pub fn words(spec: &Spec, has_network: bool) -> Words {
    match is_paravirtual(spec) {
        true => Words {
            console: "console=hvc0",
            channel: "biv.channel=hvc1",
            mtu: if has_network { "biv.mtu=65520" } else { "" },
        },
        // At the virtio port, if its kernel has a driver, else at the second serial port.
        false => Words { console: "console=ttyS0", channel: "biv.channel=vport,ttyS1", mtu: "" },
    }
}

/// What the guest calls the disk of an image, which is behind all others; nothing where it finds that by its serial
/// number.
pub fn image_device(spec: &Spec) -> Option<String> {
    is_paravirtual(spec).then(|| disk_name(spec.disks().count()))
}

/// What `xen-blkfront` calls the disk with this index.
fn disk_name(index: usize) -> String {
    const LETTERS: usize = 26;
    let (mut rest, mut letters) = (index, Vec::new());
    loop {
        letters.push(char::from(b'a' + (rest % LETTERS) as u8));
        if rest < LETTERS {
            break;
        }
        rest = rest / LETTERS - 1;
    }
    format!("xvd{}", letters.iter().rev().collect::<String>())
}

/// What the guest calls the disk, or its partition, that its root is on.
pub fn root_device(spec: &Spec, root: &DiskRoot) -> String {
    match is_paravirtual(spec) {
        true => format!("x{}", root.device()),
        false => root.device(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disks_are_called_as_linux_calls_them() {
        let names = [(0, "xvda"), (25, "xvdz"), (26, "xvdaa"), (701, "xvdzz"), (702, "xvdaaa")];
        for (index, name) in names {
            assert_eq!(disk_name(index), name);
        }
    }

    #[test]
    fn an_image_is_behind_the_disks_of_a_paravirtual_machine() {
        let text = r#"{"version": 1, "devices": [{"kind": "disk", "path": "a"}]}"#;
        let mut spec = Spec::parse(text.as_bytes()).unwrap();
        assert_eq!(image_device(&spec), None);
        spec.machine.board = Board::Xen;
        assert_eq!(image_device(&spec).as_deref(), Some("xvdb"));
    }
}
