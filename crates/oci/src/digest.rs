//! Digests: what content is addressed by (image-spec, `descriptor.md`).

use std::fmt;
use std::io::{self, Read, Write};
use std::str::FromStr;

use sha2::{Digest as _, Sha256};

/// The SHA-256 of something. No other algorithm is in use.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest([u8; 32]);

/// A text that is no digest of ours.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no SHA-256 digest (sha256:, and 64 digits)")]
pub struct NoDigest(pub String);

impl Digest {
    /// That of these bytes.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// Its 64 hexadecimal digits.
    #[must_use]
    pub fn hex(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Its bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl FromStr for Digest {
    type Err = NoDigest;

    fn from_str(text: &str) -> Result<Self, NoDigest> {
        let refused = || NoDigest(text.chars().take(100).collect());
        let digits = text.strip_prefix("sha256:").ok_or_else(refused)?.as_bytes();
        let digit = |digit: u8| match digit {
            b'0'..=b'9' => Some(digit - b'0'),
            b'a'..=b'f' => Some(digit - b'a' + 10),
            _ => None,
        };
        let mut bytes = [0; 32];
        if digits.len() != 2 * bytes.len() {
            return Err(refused());
        }
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks(2)) {
            let (high, low) = (digit(pair[0]), digit(pair[1]));
            *byte = high.zip(low).map(|(high, low)| high << 4 | low).ok_or_else(refused)?;
        }
        Ok(Self(bytes))
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "sha256:{}", self.hex())
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, out)
    }
}

/// Passes bytes on, and has the digest of all of them.
pub struct Hashing<T> {
    inner: T,
    hasher: Sha256,
    bytes: u64,
}

impl<T> Hashing<T> {
    /// Nothing yet.
    pub fn new(inner: T) -> Self {
        Self { inner, hasher: Sha256::new(), bytes: 0 }
    }

    /// What they are passed on to, or come from.
    pub fn inner(&self) -> &T {
        &self.inner
    }

    /// The digest, and how many bytes there were.
    pub fn finish(self) -> (Digest, u64) {
        let (_, digest, bytes) = self.into_parts();
        (digest, bytes)
    }

    /// That, the digest, and how many bytes there were.
    pub fn into_parts(self) -> (T, Digest, u64) {
        (self.inner, Digest(self.hasher.finalize().into()), self.bytes)
    }
}

impl<T: Read> Read for Hashing<T> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.hasher.update(&buffer[..read]);
        self.bytes += read as u64;
        Ok(read)
    }
}

impl<T: Write> Write for Hashing<T> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.hasher.update(&bytes[..written]);
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_what_it_is_written_as() {
        // FIPS 180-4, of "abc".
        let text = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(Digest::of(b"abc").to_string(), text);
        assert_eq!(text.parse(), Ok(Digest::of(b"abc")));
        let mut hashing = Hashing::new(&b"abc"[..]);
        io::copy(&mut hashing, &mut io::sink()).unwrap();
        assert_eq!(hashing.finish(), (Digest::of(b"abc"), 3));
    }

    #[test]
    fn what_is_no_digest_is_refused() {
        let digits = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        let wrong = [
            digits.to_owned(),
            format!("sha512:{digits}"),
            format!("sha256:{digits}0"),
            format!("sha256:{}", &digits[1..]),
            format!("sha256:{}", digits.to_uppercase()),
            "sha256:../../../../../../../../../../../../../../../../../../../../../../".to_owned(),
            String::new(),
        ];
        for text in wrong {
            assert!(text.parse::<Digest>().is_err(), "{text:?}");
        }
    }
}
