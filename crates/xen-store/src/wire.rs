//! Messages on the wire (public/io/xs_wire.h): a header of four words, then a payload.

use xen_abi::Wire;
pub(crate) use xen_abi::store::Header;
use xen_abi::store::kind;

use crate::error::Error;

/// Bytes of a header.
pub const HEADER_BYTES: usize = Header::BYTES;

/// What a message is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Directory = kind::DIRECTORY as isize,
    Read = kind::READ as isize,
    GetPermissions = kind::GET_PERMS as isize,
    Watch = kind::WATCH as isize,
    Unwatch = kind::UNWATCH as isize,
    TransactionStart = kind::TRANSACTION_START as isize,
    TransactionEnd = kind::TRANSACTION_END as isize,
    GetDomainPath = kind::GET_DOMAIN_PATH as isize,
    Write = kind::WRITE as isize,
    MakeDirectory = kind::MKDIR as isize,
    Remove = kind::RM as isize,
    SetPermissions = kind::SET_PERMS as isize,
    WatchEvent = kind::WATCH_EVENT as isize,
    Error = kind::ERROR as isize,
    IsDomainIntroduced = kind::IS_DOMAIN_INTRODUCED as isize,
    ResetWatches = kind::RESET_WATCHES as isize,
    DirectoryPart = kind::DIRECTORY_PART as isize,
}

/// Requests of the control domain's alone. The host does these by calls, not by messages.
const CONTROL_REQUESTS: [u32; 5] =
    [kind::CONTROL, kind::INTRODUCE, kind::RELEASE, kind::RESUME, kind::SET_TARGET];

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

/// A whole message.
pub(crate) fn message(kind: Kind, request: u32, transaction: u32, payload: &[u8]) -> Vec<u8> {
    let length = payload.len() as u32;
    let header = Header { kind: kind as u32, request, transaction, length };
    [&header.to_bytes(), payload].concat()
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
