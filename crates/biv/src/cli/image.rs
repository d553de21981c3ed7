//! Images of containers: the verbs about them, and what `biv run` may say of one.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum, ValueHint};
use spec::Network;

use super::Format;

/// What is done with images of containers.
#[derive(Debug, Subcommand)]
pub enum ContainerImageAction {
    /// Download images from registries: debian:12 is docker.io/library/debian:12, as for Docker and podman
    Pull {
        /// Names of the images; or oci:DIR[:TAG], oci-archive:FILE[:TAG], docker-archive:FILE[:NAME]
        #[arg(required = true)]
        name: Vec<String>,

        /// How registries are talked to.
        #[command(flatten)]
        access: Access,
    },
    /// Upload an image to a registry
    Push {
        /// Name of the image
        name: String,

        /// Its name in the registry [default: the same]
        destination: Option<String>,

        /// How registries are talked to.
        #[command(flatten)]
        access: Access,
    },
    /// Add the images of an archive, which `docker save`, `podman save`, `biv image save` or others have made, or of an
    /// OCI layout, which is a directory
    Load {
        /// The archive or directory [default: standard input]
        #[arg(short, long, value_name = "FILE", value_hint = ValueHint::AnyPath)]
        input: Option<PathBuf>,
    },
    /// Write images to an archive that `docker load`, `podman load` and others read (an OCI layout, with Docker's list)
    Save {
        /// The archive [default: standard output]
        #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
        output: Option<PathBuf>,

        /// Names of the images
        #[arg(required = true)]
        name: Vec<String>,
    },
    /// Give a container image a further name
    Tag {
        /// Name of the image
        name: String,

        /// The further name
        new: String,
    },
    /// Print what a container image says (JSON): its manifest and its configuration
    Inspect {
        /// Name of the image
        name: String,
    },
    /// Remove container images without a name, and what no image needs
    Prune {
        /// Output format
        #[arg(long, value_enum, default_value_t = Format::Text)]
        format: Format,
    },
}

/// How registries are talked to.
#[derive(Debug, Clone, Copy, Args)]
pub struct Access {
    /// Talk plain HTTP to a registry that has nothing else, and accept any certificate. (HTTP is always tried for
    /// registries on this host)
    #[arg(long)]
    pub insecure: bool,
}

/// When an image is pulled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Pull {
    /// If it is not here
    #[default]
    Missing,
    /// Each time
    Always,
    /// Never
    Never,
}

/// A list of words that is one argument.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Words(pub Vec<OsString>);

/// A program, or a list in JSON.
pub fn parse_entrypoint(text: &str) -> Result<Words, String> {
    if text.is_empty() {
        return Ok(Words(Vec::new()));
    }
    if !text.starts_with('[') {
        return Ok(Words(vec![text.into()]));
    }
    let words: Vec<String> =
        serde_json::from_str(text).map_err(|error| format!("no list of words: {error}"))?;
    match words.iter().any(|word| word.contains('\0')) {
        true => Err("a word with a NUL in it".to_owned()),
        false => Ok(Words(words.into_iter().map(OsString::from).collect())),
    }
}

/// Has the ports that an image exposes published, if that is `wanted`.
///
/// # Errors
///
/// There is no network for that.
pub fn publish_exposed(networks: &mut Option<Vec<Network>>, wanted: bool) -> Result<(), String> {
    if wanted {
        match networks.iter_mut().flatten().next() {
            Some(Network::User(network)) => network.publish_exposed = true,
            _ => return Err("--publish-all requires --net user".to_owned()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_point_is_a_program_or_a_list() {
        let words = |list: &[&str]| Ok(Words(list.iter().map(OsString::from).collect()));
        assert_eq!(parse_entrypoint(""), words(&[]));
        assert_eq!(parse_entrypoint("/bin/a b"), words(&["/bin/a b"]));
        assert_eq!(parse_entrypoint(r#"["a", "b c"]"#), words(&["a", "b c"]));
        for text in ["[", "[1]", r#"["\u0000"]"#] {
            assert!(parse_entrypoint(text).is_err(), "{text}");
        }
    }
}
