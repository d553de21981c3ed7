//! What init does itself with files, because the guest's root need not have the programs for it: packs them
//! to its standard output, or unpacks them from its standard input.

/// Which files, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Copy {
    /// Pack what is at `path`.
    Out {
        /// Where it is.
        path: Vec<u8>,
        /// If it is a symbolic link, what that leads to is meant.
        follows_link: bool,
    },
    /// Unpack.
    In {
        /// Where to.
        path: Vec<u8>,
        /// What it is called there.
        name: Name,
        /// Everything belongs to whom it belonged to, instead of to who runs the machine's command.
        keeps_owners: bool,
    },
}

/// What becomes of the first name in a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Name {
    /// It stays.
    AsItIs,
    /// This one takes its place, if there is a directory for it.
    Copy(Vec<u8>),
    /// There is none: what is copied is what is in a directory.
    Contents,
}

impl Copy {
    /// As the arguments of an [`crate::Order`].
    #[must_use]
    pub fn into_arguments(self) -> Vec<Vec<u8>> {
        let flag = |is_set: bool| if is_set { b"1".to_vec() } else { b"0".to_vec() };
        match self {
            Copy::Out { path, follows_link } => vec![b"out".to_vec(), flag(follows_link), path],
            Copy::In { path, name, keeps_owners } => {
                let (naming, name) = match name {
                    Name::AsItIs => (&b"as-it-is"[..], Vec::new()),
                    Name::Copy(name) => (&b"copy"[..], name),
                    Name::Contents => (&b"contents"[..], Vec::new()),
                };
                vec![b"in".to_vec(), flag(keeps_owners), path, naming.to_vec(), name]
            }
        }
    }

    /// The inverse of [`Copy::into_arguments`].
    #[must_use]
    pub fn from_arguments(arguments: &[Vec<u8>]) -> Option<Copy> {
        let (way, rest) = arguments.split_first()?;
        match (&way[..], rest) {
            (b"out", [flag, path]) => {
                Some(Copy::Out { path: path.clone(), follows_link: *flag == *b"1" })
            }
            (b"in", [flag, path, naming, name]) => {
                let name = match &naming[..] {
                    b"as-it-is" => Name::AsItIs,
                    b"copy" => Name::Copy(name.clone()),
                    b"contents" => Name::Contents,
                    _ => return None,
                };
                Some(Copy::In { path: path.clone(), name, keeps_owners: *flag == *b"1" })
            }
            _ => None,
        }
    }
}
