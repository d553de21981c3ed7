//! Whether Debian has signed something: a text in the cleartext signature framework (RFC 9580, section 7).

use pgp::composed::{CleartextSignedMessage, Deserializable, SignedPublicKey};

/// The keys with which the archive signs Debian 12, 13 and, from the day on which it begins, 14, and their security
/// updates: those of the package debian-archive-keyring, in which the archive's maintainers publish them.
const DEBIANS: [&[u8]; 6] = [
    include_bytes!("keys/bookworm-automatic.gpg"),
    include_bytes!("keys/bookworm-security-automatic.gpg"),
    include_bytes!("keys/bookworm-stable.gpg"),
    include_bytes!("keys/trixie-automatic.gpg"),
    include_bytes!("keys/trixie-security-automatic.gpg"),
    include_bytes!("keys/trixie-stable.gpg"),
];

/// Why nobody should believe it.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Untrusted {
    /// It is something else.
    #[error("it is not a signed text ({0})")]
    NotSigned(String),
    /// Nobody that is known has signed it.
    #[error("none of its signatures is one of Debian's")]
    NoKey,
}

/// Debian's keys.
pub fn debians() -> Vec<SignedPublicKey> {
    DEBIANS.iter().filter_map(|key| SignedPublicKey::from_bytes(*key).ok()).collect()
}

/// The text that one of these keys has signed, with line feeds at the ends of its lines: what is not signed, before or
/// after it, is not in it.
pub fn verified(signed: &[u8], keys: &[SignedPublicKey]) -> Result<String, Untrusted> {
    let not_signed = |error: pgp::errors::Error| Untrusted::NotSigned(error.to_string());
    let (message, _) =
        CleartextSignedMessage::from_armor_buf(signed, Default::default()).map_err(not_signed)?;
    // Debian's primary keys certify, and subkeys sign; that they belong together is checked.
    let is_signed = keys.iter().any(|key| {
        let subkeys = key.public_subkeys.iter();
        let mut bound = subkeys.filter(|subkey| subkey.verify_bindings(&key.primary_key).is_ok());
        message.verify(&key.primary_key).is_ok()
            || bound.any(|subkey| message.verify(&subkey.key).is_ok())
    });
    match is_signed {
        true => Ok(message.signed_text().replace("\r\n", "\n")),
        false => Err(Untrusted::NoKey),
    }
}
