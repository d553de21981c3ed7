//! The signature of a snapshot, with the Ed25519 key of this user, in the snapshot's label.
//!
//! A snapshot that is restored wants directories, disks, ports and a network of the host, and a
//! warm start gives what `biv run` was told to a guest that is already there. Neither may be a file
//! that another user or program has made or changed. So:
//!
//! 1. *The signature covers the machine and what it was given*: the [`Digest`] of the snapshot
//!    (memory, vCPUs, devices, and the note with the conversation), the text beside it in the label
//!    (the host resources), and the [`Purpose`]. No part of one file can be used in another:
//!    neither can a guest's memory be put under the resources of another guest, nor a warm start be
//!    made from a domain.
//! 2. *No process that runs a guest ever has the secret key.* `biv snapshot` signs, which is the
//!    user's own process and not the domain, and a helper signs that ends before the first program
//!    of a guest runs ([`seal_warm_start`]). A process that starts a machine needs the public key
//!    only; that is why this is a signature and not a MAC.
//! 3. *Keys belong to the user alone.* Both are in `$XDG_STATE_HOME/bivouac`, a directory that only
//!    its owner may write; no other user may read the secret one. They appear whole, under their
//!    names, or not at all.
//! 4. *Without a valid signature a snapshot is a foreign one*, which grants nothing. It is no
//!    error.

use std::fs::{DirBuilder, File};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};

use ed25519_dalek::{SIGNATURE_LENGTH, Signature, Signer, SigningKey, VerifyingKey};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, fstat, linkat, openat, renameat, unlinkat};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use vmm::snapshot::Digest;

use crate::helper::again;
use api::files::random;

/// The secret half of the key, in the directory of state.
const SECRET: &str = "snapshot.key";

/// The public half.
const PUBLIC: &str = "snapshot.pub";

/// Bytes of either.
const KEY_BYTES: usize = 32;

/// The kind of process that signs a warm start.
pub const KIND: &str = "seal";

/// Why nothing can be signed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no place for keys.
    #[error("neither XDG_STATE_HOME nor HOME names a directory for the key that signs snapshots")]
    NoPlace,
    /// The directory of keys, or one of them.
    #[error(
        "cannot use the key that signs snapshots, in {path}: {error}; the directory and the key \
         must be yours, and nobody else may write to them",
        path = path.display()
    )]
    Key {
        /// The directory.
        path: PathBuf,
        /// What is wrong.
        error: io::Error,
    },
    /// The snapshot.
    #[error(transparent)]
    Snapshot(#[from] vmm::snapshot::Error),
    /// The process that signs a warm start.
    #[error("cannot sign a warm start: {0}")]
    WarmStart(#[from] io::Error),
}

/// What a signature is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose<'a> {
    /// `biv restore`, with what the text says.
    Restore,
    /// Warm starts, from the file of this name.
    WarmStart(&'a str),
}

/// What is signed: each part with its length, so that no two messages are the same bytes.
fn message(purpose: Purpose<'_>, digest: &Digest, text: &[u8]) -> Vec<u8> {
    let (kind, name) = match purpose {
        Purpose::Restore => (&b"bivouac restore 1"[..], ""),
        Purpose::WarmStart(name) => (&b"bivouac warm start 1"[..], name),
    };
    let mut message = Vec::new();
    for part in [kind, name.as_bytes(), &digest.0, text] {
        message.extend((part.len() as u64).to_le_bytes());
        message.extend(part);
    }
    message
}

/// `$XDG_STATE_HOME/bivouac`, or `~/.local/state/bivouac` (XDG Base Directory Specification: a relative path is
/// to be ignored).
pub fn state_directory() -> Result<PathBuf, Error> {
    let absolute = |name| {
        let path = PathBuf::from(std::env::var_os(name)?);
        path.is_absolute().then_some(path)
    };
    absolute("XDG_STATE_HOME")
        .or_else(|| absolute("HOME").map(|home| home.join(".local/state")))
        .map(|state| state.join("bivouac"))
        .ok_or(Error::NoPlace)
}

/// A label's text, and who vouches for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Label<'a> {
    /// What it says.
    pub text: &'a [u8],
    /// Whether this user's `biv` does, for this purpose and this snapshot.
    pub is_ours: bool,
}

/// The label of a snapshot, or an empty one if it is not signed.
#[must_use]
pub fn read<'a>(label: &'a [u8], purpose: Purpose<'_>, digest: &Digest) -> Label<'a> {
    let key = state_directory().ok().and_then(|place| public_key(&place).ok());
    read_with(key.as_ref(), label, purpose, digest)
}

fn read_with<'a>(
    key: Option<&VerifyingKey>,
    label: &'a [u8],
    purpose: Purpose<'_>,
    digest: &Digest,
) -> Label<'a> {
    let Some((signature, text)) = label.split_first_chunk::<SIGNATURE_LENGTH>() else {
        return Label { text: &[], is_ours: false };
    };
    let signature = Signature::from_bytes(signature);
    let signed = message(purpose, digest, text);
    let is_ours = key.is_some_and(|key| key.verify_strict(&signed, &signature).is_ok());
    Label { text, is_ours }
}

/// Adds a signed label to a snapshot that has none, with the key in this directory, which is made if there is
/// none.
///
/// # Errors
///
/// [`Error`]; the file has no label then.
pub fn seal(file: &File, place: &Path, purpose: Purpose<'_>, text: &[u8]) -> Result<(), Error> {
    let key = secret_key(place).map_err(|error| Error::Key { path: place.to_owned(), error })?;
    let label = |digest: &Digest| {
        let signature = key.sign(&message(purpose, digest, text));
        [&signature.to_bytes()[..], text].concat()
    };
    Ok(vmm::snapshot::label(file, label)?)
}

/// What a process is started with that signs a warm start and names it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sealing {
    /// The directory of the key.
    #[serde(with = "spec::text")]
    pub state: PathBuf,
    /// What is signed with it.
    pub text: String,
    /// What it is to be called.
    pub name: String,
    /// It is the process that does it, and not the one that starts it.
    pub in_background: bool,
}

/// What the process does that `biv run` starts to have a warm start signed and named: standard output is the
/// file, which has no name yet, and the current directory is where it is to have one. One byte on standard
/// input says that the snapshot is whole, and one is the answer. If there is none, the machine has ended before.
///
/// # Errors
///
/// What went wrong; the machine is told that something did.
pub fn seal_warm_start(sealing: &Sealing) -> Result<(), Error> {
    if !sealing.in_background {
        // Whoever started us waits for this process only.
        let order = Sealing { in_background: true, ..sealing.clone() };
        again(KIND, &order)?.arg0("biv").spawn()?;
        return Ok(());
    }
    let (asker, file) = (io::stdin(), File::from(io::stdout().as_fd().try_clone_to_owned()?));
    let mut asked = [0];
    if rustix::io::read(&asker, &mut asked).map_err(io::Error::from)? == 0 {
        return Ok(());
    }
    let purpose = Purpose::WarmStart(&sealing.name);
    let result = seal(&file, &sealing.state, purpose, sealing.text.as_bytes());
    let result = result.and_then(|()| {
        let unnamed = format!("/proc/self/fd/{}", file.as_raw_fd());
        linkat(CWD, unnamed, CWD, &sealing.name, AtFlags::SYMLINK_FOLLOW)
            .map_err(|error| Error::WarmStart(error.into()))
    });
    // A machine that has ended does not hear it.
    let _ = rustix::io::write(&asker, &[u8::from(result.is_ok())]);
    result
}

/// The directory of keys, which no other user may write to; it is made if it is not there.
fn open_place(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let place = openat(CWD, path, flags, Mode::empty())?;
    let found = fstat(&place)?;
    if found.st_uid != rustix::process::geteuid().as_raw() || found.st_mode & 0o022 != 0 {
        return Err(io::Error::other("it belongs to another user, or others may write to it"));
    }
    Ok(place)
}

/// A key, whose file gives no other user any of the `forbidden` rights.
fn read_key(place: &OwnedFd, name: &str, forbidden: u32) -> io::Result<[u8; KEY_BYTES]> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = openat(place, name, flags, Mode::empty())?;
    let found = fstat(&file)?;
    let is_ours = found.st_uid == rustix::process::geteuid().as_raw();
    if !is_ours || found.st_mode & (0o170_000 | forbidden) != 0o100_000 {
        return Err(io::Error::other(format!("others own {name}, or have rights to it")));
    }
    let mut key = [0; KEY_BYTES];
    let mut file = File::from(file);
    file.read_exact(&mut key)?;
    match file.read(&mut [0])? {
        0 => Ok(key),
        _ => Err(io::Error::other(format!("{name} is no key"))),
    }
}

fn public_key(path: &Path) -> io::Result<VerifyingKey> {
    let bytes = read_key(&open_place(path)?, PUBLIC, 0o022)?;
    VerifyingKey::from_bytes(&bytes).map_err(io::Error::other)
}

/// The secret half, which is made if there is none; the public half is beside it then.
fn secret_key(path: &Path) -> io::Result<SigningKey> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)?;
    let place = open_place(path)?;
    let secret = match read_key(&place, SECRET, 0o077) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let mut fresh = [0; KEY_BYTES];
            rustix::rand::getrandom(&mut fresh, rustix::rand::GetRandomFlags::empty())?;
            let unnamed = write_aside(&place, &fresh)?;
            // Another may be faster: then the key is that one's.
            let linked = linkat(&place, &unnamed, &place, SECRET, AtFlags::empty());
            unlinkat(&place, &unnamed, AtFlags::empty())?;
            match linked {
                Ok(()) | Err(Errno::EXIST) => read_key(&place, SECRET, 0o077)?,
                Err(error) => return Err(error.into()),
            }
        }
        other => other?,
    };
    let key = SigningKey::from_bytes(&secret);
    let public = key.verifying_key().to_bytes();
    if read_key(&place, PUBLIC, 0o022).ok() != Some(public) {
        renameat(&place, write_aside(&place, &public)?, &place, PUBLIC)?;
    }
    Ok(key)
}

/// A file with this contents, for its owner only, under an unused name.
fn write_aside(place: &OwnedFd, contents: &[u8]) -> io::Result<String> {
    let name = format!(".{}.{:016x}", std::process::id(), random());
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let mut file = File::from(openat(place, &name, flags, Mode::RUSR | Mode::WUSR)?);
    file.write_all(contents)?;
    file.sync_all()?;
    Ok(name)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// A directory of state that disappears.
    struct Place(PathBuf);

    impl Place {
        fn new() -> Self {
            let path = std::env::temp_dir().join(format!("biv-seal-{:016x}", random()));
            Self(path)
        }

        fn label(&self, purpose: Purpose<'_>, digest: &Digest, text: &[u8]) -> Vec<u8> {
            let key = secret_key(&self.0).unwrap();
            [&key.sign(&message(purpose, digest, text)).to_bytes()[..], text].concat()
        }

        fn vouches(&self, label: &[u8], purpose: Purpose<'_>, digest: &Digest) -> bool {
            read_with(public_key(&self.0).ok().as_ref(), label, purpose, digest).is_ours
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    const DIGEST: Digest = Digest([7; 32]);

    #[test]
    fn a_signature_is_for_one_snapshot_one_text_and_one_purpose() {
        let place = Place::new();
        let label = place.label(Purpose::Restore, &DIGEST, b"what it had");
        assert!(place.vouches(&label, Purpose::Restore, &DIGEST));
        assert!(!place.vouches(&label, Purpose::Restore, &Digest([8; 32])));
        assert!(!place.vouches(&label, Purpose::WarmStart("x"), &DIGEST));
        for changed in 0..label.len() {
            let mut label = label.clone();
            label[changed] ^= 1;
            assert!(!place.vouches(&label, Purpose::Restore, &DIGEST), "byte {changed}");
        }
        for cut in [0, 1, SIGNATURE_LENGTH - 1, SIGNATURE_LENGTH, label.len() - 1] {
            assert!(!place.vouches(&label[..cut], Purpose::Restore, &DIGEST), "{cut} bytes");
        }
        let warm = place.label(Purpose::WarmStart("x"), &DIGEST, b"");
        assert!(place.vouches(&warm, Purpose::WarmStart("x"), &DIGEST));
        assert!(!place.vouches(&warm, Purpose::WarmStart("y"), &DIGEST));
    }

    #[test]
    fn another_key_vouches_for_nothing_of_ours() {
        let (place, other) = (Place::new(), Place::new());
        let label = place.label(Purpose::Restore, &DIGEST, b"");
        assert!(!other.vouches(&label, Purpose::Restore, &DIGEST), "there is no key");
        other.label(Purpose::Restore, &DIGEST, b"");
        assert!(!other.vouches(&label, Purpose::Restore, &DIGEST));
    }

    #[test]
    fn keys_that_others_could_have_made_or_read_are_not_used() {
        let place = Place::new();
        let label = place.label(Purpose::Restore, &DIGEST, b"");
        let set_mode = |path: &Path, mode| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        };
        let (secret, public) = (place.0.join(SECRET), place.0.join(PUBLIC));
        assert_eq!(fs::metadata(&secret).unwrap().permissions().mode() & 0o777, 0o600);
        set_mode(&secret, 0o640);
        assert!(secret_key(&place.0).is_err());
        set_mode(&secret, 0o600);
        set_mode(&public, 0o666);
        assert!(!place.vouches(&label, Purpose::Restore, &DIGEST));
        set_mode(&public, 0o644);
        set_mode(&place.0, 0o770);
        assert!(!place.vouches(&label, Purpose::Restore, &DIGEST));
        assert!(secret_key(&place.0).is_err());
        set_mode(&place.0, 0o700);
        assert!(place.vouches(&label, Purpose::Restore, &DIGEST));
        // A public half that is not that of the secret one is replaced when something is signed.
        fs::write(&public, [1; KEY_BYTES]).unwrap();
        assert!(!place.vouches(&label, Purpose::Restore, &DIGEST));
        secret_key(&place.0).unwrap();
        assert!(place.vouches(&label, Purpose::Restore, &DIGEST));
        fs::write(&secret, b"short").unwrap();
        assert!(secret_key(&place.0).is_err());
    }

    #[test]
    fn those_who_make_a_key_at_once_make_one() {
        let place = Place::new();
        let make = || secret_key(&place.0).unwrap().to_bytes();
        let keys: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(make)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(keys.iter().all(|key| *key == keys[0]));
        assert_eq!(fs::read_dir(&place.0).unwrap().count(), 2, "nothing else is left");
    }
}
