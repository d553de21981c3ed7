//! File names and arguments in a description: strings if they are UTF-8, else `{"base64": "..."}`,
//! because Linux allows any bytes.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// How one is written.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Form {
    Text(String),
    Bytes { base64: String },
}

impl Form {
    fn of(value: &OsStr) -> Self {
        match value.to_str() {
            Some(text) => Self::Text(text.to_owned()),
            None => Self::Bytes { base64: BASE64_STANDARD.encode(value.as_bytes()) },
        }
    }

    /// The system has no string with a NUL.
    fn into_value<E: serde::de::Error>(self) -> Result<OsString, E> {
        let bytes = match self {
            Self::Text(text) => text.into_bytes(),
            Self::Bytes { base64 } => BASE64_STANDARD.decode(base64).map_err(E::custom)?,
        };
        if bytes.contains(&0) {
            return Err(E::custom("a string with a NUL in it"));
        }
        Ok(OsString::from_vec(bytes))
    }
}

/// Writes one.
///
/// # Errors
///
/// The serializer's.
pub fn serialize<S: Serializer>(value: impl AsRef<OsStr>, to: S) -> Result<S::Ok, S::Error> {
    Form::of(value.as_ref()).serialize(to)
}

/// Reads one.
///
/// # Errors
///
/// It is neither form, or has a NUL in it.
pub fn deserialize<'de, T: From<OsString>, D: Deserializer<'de>>(from: D) -> Result<T, D::Error> {
    Form::deserialize(from)?.into_value().map(T::from)
}

/// One that there may be.
pub mod option {
    use super::*;

    /// Writes it.
    ///
    /// # Errors
    ///
    /// The serializer's.
    pub fn serialize<T, S>(value: &Option<T>, to: S) -> Result<S::Ok, S::Error>
    where
        T: AsRef<OsStr>,
        S: Serializer,
    {
        value.as_ref().map(|value| Form::of(value.as_ref())).serialize(to)
    }

    /// Reads it.
    ///
    /// # Errors
    ///
    /// As of [`super::deserialize`].
    pub fn deserialize<'de, T, D>(from: D) -> Result<Option<T>, D::Error>
    where
        T: From<OsString>,
        D: Deserializer<'de>,
    {
        let form = Option::<Form>::deserialize(from)?;
        form.map(|form| form.into_value().map(T::from)).transpose()
    }
}

/// Several.
pub mod list {
    use super::*;

    /// The most that is read of one list.
    const COUNT_MAX: usize = 1 << 20;

    /// Writes them.
    ///
    /// # Errors
    ///
    /// The serializer's.
    pub fn serialize<T: AsRef<OsStr>, S: Serializer>(all: &[T], to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(all.iter().map(|value| Form::of(value.as_ref())))
    }

    /// Reads them.
    ///
    /// # Errors
    ///
    /// As of [`super::deserialize`].
    pub fn deserialize<'de, T, D>(from: D) -> Result<Vec<T>, D::Error>
    where
        T: From<OsString>,
        D: Deserializer<'de>,
    {
        let forms = Vec::<Form>::deserialize(from)?;
        if forms.len() > COUNT_MAX {
            return Err(D::Error::custom("a list with more items than anybody has"));
        }
        forms.into_iter().map(|form| form.into_value().map(T::from)).collect()
    }
}

/// Several that there may be.
pub mod list_option {
    use super::*;

    /// Writes them.
    ///
    /// # Errors
    ///
    /// The serializer's.
    pub fn serialize<S: Serializer>(all: &Option<Vec<OsString>>, to: S) -> Result<S::Ok, S::Error> {
        let forms = |all: &Vec<OsString>| all.iter().map(|one| Form::of(one)).collect::<Vec<_>>();
        all.as_ref().map(forms).serialize(to)
    }

    /// Reads them.
    ///
    /// # Errors
    ///
    /// As of [`list::deserialize`].
    pub fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<Vec<OsString>>, D::Error> {
        #[derive(Deserialize)]
        struct All(#[serde(with = "list")] Vec<OsString>);
        Ok(Option::<All>::deserialize(from)?.map(|All(all)| all))
    }
}
