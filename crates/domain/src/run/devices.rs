//! The requirements of a guest's devices and directories: the drivers that init must find for what
//! the user has named. A guest can do without what a machine has by default.

use protocol::devices::{Devices, Kind};
use protocol::{Frame, PART_BYTES};
use spec::{Net, Spec};

use super::directories::Directories;
use super::paravirtual::is_paravirtual;
use super::{guest, plugged};
use crate::domain::Domain;

/// What the guest's init is told of it.
pub fn needs(directories: &Directories, spec: &Spec) -> Vec<Frame> {
    let image_disks = directories.image_disk.iter().count();
    let (mounts, devices) = (directories.list(), list(spec, image_disks));
    let mounts = mounts.chunks(PART_BYTES).map(|part| Frame::Mounts(part.to_vec()));
    let hostname = spec.hostname.iter().map(|name| Frame::Hostname(name.clone().into_bytes()));
    mounts.chain([Frame::Devices(devices)]).chain(hostname).collect()
}

/// The list of devices, where so many disks are images of roots.
fn list(spec: &Spec, image_disks: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    wanted(spec, image_disks).into_iter().for_each(|devices| devices.encode(&mut bytes));
    bytes
}

fn wanted(spec: &Spec, image_disks: usize) -> Vec<Devices> {
    let has_network = guest::net(spec) != Net::None;
    let wants_network = spec.networks.is_some();
    let disks = u8::try_from(spec.disks().count() + image_disks).unwrap_or(u8::MAX);
    // What has a name can be given less memory, and somebody may sit down at its console.
    let is_known = Domain::is_wanted(&spec.life) && !is_paravirtual(spec);
    let all = [
        (Kind::Disk, disks, false),
        (Kind::Network, has_network.into(), !wants_network),
        (Kind::Sockets, spec.sockets().next().is_some().into(), false),
        (Kind::Balloon, is_known.into(), true),
        (Kind::Console, is_known.into(), true),
    ];
    let devices = |(kind, count, is_optional)| Devices { kind, count, is_optional };
    let plain = plugged::plain_kinds(spec).map(|kind| (kind, 1, false));
    all.into_iter().chain(plain).map(devices).filter(|devices| devices.count > 0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_user_names_is_needed_and_what_is_there_by_default_is_not() {
        let check = |text: &str, expected: &[(Kind, u8, bool)]| {
            let text = format!("{{\"version\": {}, {text}}}", spec::VERSION);
            let spec = Spec::parse(text.as_bytes()).unwrap();
            let found: Vec<_> =
                wanted(&spec, 0).iter().map(|it| (it.kind, it.count, it.is_optional)).collect();
            assert_eq!(found, expected, "{text}");
        };
        let user = r#"{"kind": "user"}"#;
        let published = r#"{"kind": "user", "publish": [{"host": 8080, "guest": 80}]}"#;
        let with = |devices: &str| format!(r#""networks": [], {devices}"#);
        check(r#""process": {"args": ["true"]}"#, &[(Kind::Network, 1, true)]);
        check(r#""networks": []"#, &[]);
        check(&format!(r#""networks": [{user}]"#), &[(Kind::Network, 1, false)]);
        check(&format!(r#""networks": [{published}]"#), &[(Kind::Network, 1, false)]);
        let disk = r#"{"kind": "disk", "path": "a"}"#;
        let root = r#""root": {"disk": {"path": "b"}}"#;
        check(&with(&format!(r#""devices": [{disk}], {root}"#)), &[(Kind::Disk, 2, false)]);
        let entropy = with(r#""devices": [{"kind": "entropy"}]"#);
        check(&entropy, &[(Kind::Entropy, 1, false)]);
        let sockets = with(r#""devices": [{"kind": "sockets", "path": "a"}]"#);
        check(&sockets, &[(Kind::Sockets, 1, false)]);
        let console = [(Kind::Balloon, 1, true), (Kind::Console, 1, true)];
        check(&with(r#""life": {"name": "web"}"#), &console);
    }
}
