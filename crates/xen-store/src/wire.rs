//! Messages on the wire (public/io/xs_wire.h): a header of four words, then a payload.

use crate::error::Error;

/// Bytes of a header.
pub const HEADER_BYTES: usize = 16;

/// What a message is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Directory = 1,
    Read = 2,
    GetPermissions = 3,
    Watch = 4,
    Unwatch = 5,
    TransactionStart = 6,
    TransactionEnd = 7,
    GetDomainPath = 10,
    Write = 11,
    MakeDirectory = 12,
    Remove = 13,
    SetPermissions = 14,
    WatchEvent = 15,
    Error = 16,
    IsDomainIntroduced = 17,
    ResetWatches = 21,
    DirectoryPart = 22,
}

/// Requests of the control domain's alone: 0 control, 8 introduce, 9 release, 18 resume, 19 set_target. The host does
/// these by calls, not by messages.
const CONTROL_REQUESTS: [u32; 5] = [0, 8, 9, 18, 19];

impl Kind {
    /// The request of this number.
    pub fn of_request(number: u32, is_privileged: bool) -> Result<Self, Error> {
        let requests = [
            Self::Directory,
            Self::Read,
            Self::GetPermissions,
            Self::Watch,
            Self::Unwatch,
            Self::TransactionStart,
            Self::TransactionEnd,
            Self::GetDomainPath,
            Self::Write,
            Self::MakeDirectory,
            Self::Remove,
            Self::SetPermissions,
            Self::IsDomainIntroduced,
            Self::ResetWatches,
            Self::DirectoryPart,
        ];
        let found = requests.into_iter().find(|kind| *kind as u32 == number);
        match found {
            Some(Self::IsDomainIntroduced) if !is_privileged => Err(Error::Access),
            None if CONTROL_REQUESTS.contains(&number) && !is_privileged => Err(Error::Access),
            found => found.ok_or(Error::NoSys),
        }
    }
}

/// The header of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Header {
    pub kind: u32,
    pub request: u32,
    pub transaction: u32,
    pub length: u32,
}

impl Header {
    pub fn parse(bytes: &[u8; HEADER_BYTES]) -> Self {
        let word = |at: usize| u32::from_le_bytes(std::array::from_fn(|index| bytes[at + index]));
        Self { kind: word(0), request: word(4), transaction: word(8), length: word(12) }
    }
}

/// A whole message.
pub(crate) fn message(kind: Kind, request: u32, transaction: u32, payload: &[u8]) -> Vec<u8> {
    let length = payload.len() as u32;
    let words = [kind as u32, request, transaction, length];
    let header = words.iter().flat_map(|word| word.to_le_bytes());
    header.chain(payload.iter().copied()).collect()
}

/// A payload of one string, which ends with the payload's only NUL.
pub(crate) fn one_string(payload: &[u8]) -> Result<&str, Error> {
    let (last, bytes) = payload.split_last().ok_or(Error::Inval)?;
    let is_one = *last == 0 && !bytes.contains(&0);
    if is_one { text(bytes) } else { Err(Error::Inval) }
}

/// The first string of a payload, and what follows it.
pub(crate) fn first_string(payload: &[u8]) -> Result<(&str, &[u8]), Error> {
    let end = payload.iter().position(|byte| *byte == 0).ok_or(Error::Inval)?;
    Ok((text(&payload[..end])?, &payload[end + 1..]))
}

fn text(bytes: &[u8]) -> Result<&str, Error> {
    str::from_utf8(bytes).map_err(|_| Error::Inval)
}
