//! Copies files in and out of the guest, for `biv cp`. A process of its own, which is init executed
//! again under the name [`COPY_NAME`], packs to its standard output or unpacks from its standard
//! input ([`archive`]).

use std::ffi::{OsStr, OsString};
use std::io::{self, BufWriter};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::process::ExitCode;

use archive::{Destination, Owner, Rules, Source, pack, unpack};
use protocol::copy::{Copy, Name};

/// The name by which init knows that it is to copy files.
pub const COPY_NAME: &str = "biv-copy";

/// What init does under the name [`COPY_NAME`]. The first argument is to whom belongs what is unpacked, as
/// `USER:GROUP`; the others are those of a [`enum@Copy`].
pub fn run(mut arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let owner = arguments.next().and_then(|owner| parse_owner(owner.to_str()?));
    let arguments: Vec<_> = arguments.map(OsString::into_vec).collect();
    let (Some(owner), Some(copy)) = (owner, Copy::from_arguments(&arguments)) else {
        eprintln!("init: this is no order to copy files");
        return ExitCode::FAILURE;
    };
    match copy_files(&copy, owner) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn parse_owner(text: &str) -> Option<Owner> {
    let (user, group) = text.split_once(':')?;
    Some(Owner::Of(user.parse().ok()?, group.parse().ok()?))
}

fn copy_files(copy: &Copy, owner: Owner) -> Result<(), archive::Error> {
    let path_of = |bytes: &[u8]| Path::new(OsStr::from_bytes(bytes)).to_owned();
    match copy {
        Copy::Out { path, follows_link } => {
            let source = Source::find(&path_of(path), *follows_link)?;
            pack(&source, BufWriter::new(io::stdout().lock()))
        }
        Copy::In { path, name, keeps_owners } => {
            let path = path_of(path);
            let destination = match name {
                Name::AsItIs => Destination::Directory(path),
                Name::Copy(name) => Destination::Copy(path, Some(OsString::from_vec(name.clone()))),
                Name::Contents => Destination::Copy(path, None),
            };
            let owner = if *keeps_owners { Owner::Kept } else { owner };
            unpack(io::stdin().lock(), &destination, &Rules::of_the_master(owner)).map(drop)
        }
    }
}
