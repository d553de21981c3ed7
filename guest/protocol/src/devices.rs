//! Which devices of the machine the guest must have a driver for, as the host tells it
//! ([`crate::Frame::Devices`]): for each kind three bytes, its number, how many there are, and whether the
//! guest can do without.
//!
//! A kernel without a driver shows nothing of the device, and what a command then writes to where the device
//! should be is lost. So the guest's init counts the devices that have a driver before it runs anything.

/// Kinds of devices, by their numbers (Virtio 1.2, section 5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A network card.
    Network = 1,
    /// A disk.
    Disk = 2,
    /// A console.
    Console = 3,
    /// A source of entropy.
    Entropy = 4,
    /// A memory balloon.
    Balloon = 5,
    /// Sockets between guest and host.
    Sockets = 19,
}

const KINDS: [Kind; 6] =
    [Kind::Network, Kind::Disk, Kind::Console, Kind::Entropy, Kind::Balloon, Kind::Sockets];

/// Devices of one kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Devices {
    /// Which.
    pub kind: Kind,
    /// How many the machine has.
    pub count: u8,
    /// Nobody has asked for them: a guest whose kernel has no driver says so on its console, and goes on.
    pub is_optional: bool,
}

/// The bytes are no list of devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the list of devices makes no sense")]
pub struct NoDevices;

impl Devices {
    /// Adds them to a list.
    pub fn encode(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&[self.kind as u8, self.count, u8::from(self.is_optional)]);
    }

    /// The list that these bytes are.
    ///
    /// # Errors
    ///
    /// [`NoDevices`].
    pub fn decode_all(bytes: &[u8]) -> Result<Vec<Devices>, NoDevices> {
        let devices = |bytes: &[u8]| {
            let &[number, count, is_optional @ (0 | 1)] = bytes else { return Err(NoDevices) };
            let kind = KINDS.iter().find(|kind| **kind as u8 == number).ok_or(NoDevices)?;
            Ok(Devices { kind: *kind, count, is_optional: is_optional == 1 })
        };
        bytes.chunks(3).map(devices).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_what_it_was() {
        let devices = [
            Devices { kind: Kind::Disk, count: 3, is_optional: false },
            Devices { kind: Kind::Network, count: 1, is_optional: true },
        ];
        let mut bytes = Vec::new();
        devices.iter().for_each(|devices| devices.encode(&mut bytes));
        assert_eq!(bytes, [2, 3, 0, 1, 1, 1]);
        assert_eq!(Devices::decode_all(&bytes).unwrap(), devices);
        assert_eq!(Devices::decode_all(b"").unwrap(), []);
    }

    #[test]
    fn what_is_no_list_is_refused() {
        for wrong in [&[2][..], &[2, 1], &[2, 1, 2], &[0, 1, 0], &[2, 1, 0, 1], &[26, 1, 0]] {
            assert_eq!(Devices::decode_all(wrong), Err(NoDevices), "{wrong:?}");
        }
    }
}
