//! Which of two versions of a package is newer (deb-version(7); Debian Policy, section 5.6.12).

use std::cmp::Ordering;

/// Compares two versions: epochs as numbers, then what is before the last hyphen, then what is behind it.
pub fn compare(one: &str, other: &str) -> Ordering {
    let ((epoch, upstream, revision), (other_epoch, other_upstream, other_revision)) =
        (parts(one), parts(other));
    compare_part(epoch, other_epoch)
        .then_with(|| compare_part(upstream, other_upstream))
        .then_with(|| compare_part(revision, other_revision))
}

/// Epoch, upstream version and revision.
fn parts(version: &str) -> (&str, &str, &str) {
    let (epoch, rest) = version.split_once(':').unwrap_or(("0", version));
    let (upstream, revision) = rest.rsplit_once('-').unwrap_or((rest, "0"));
    (epoch, upstream, revision)
}

/// Compares what are no digits, then the number behind it, and so on.
fn compare_part(one: &str, other: &str) -> Ordering {
    let (mut one, mut other) = (one.as_bytes(), other.as_bytes());
    while !one.is_empty() || !other.is_empty() {
        let ordering = compare_text(
            until(&mut one, u8::is_ascii_digit),
            until(&mut other, u8::is_ascii_digit),
        );
        let is_no_digit = |byte: &u8| !byte.is_ascii_digit();
        let ordering = ordering.then_with(|| {
            compare_number(until(&mut one, is_no_digit), until(&mut other, is_no_digit))
        });
        if ordering.is_ne() {
            return ordering;
        }
    }
    Ordering::Equal
}

/// Takes what comes before the first such byte.
fn until<'a>(text: &mut &'a [u8], is_end: impl Fn(&u8) -> bool) -> &'a [u8] {
    let (before, rest) = text.split_at(text.iter().position(is_end).unwrap_or(text.len()));
    *text = rest;
    before
}

/// A tilde comes before the end, the end before letters, and letters before all else.
fn compare_text(one: &[u8], other: &[u8]) -> Ordering {
    let weight = |byte: Option<&u8>| match byte {
        Some(b'~') => 0,
        None => 1,
        Some(byte) if byte.is_ascii_alphabetic() => 2 + u16::from(*byte),
        Some(byte) => 0x200 + u16::from(*byte),
    };
    let weights = |text: &[u8]| -> Vec<_> {
        (0..one.len().max(other.len())).map(|at| weight(text.get(at))).collect()
    };
    weights(one).cmp(&weights(other))
}

/// Numbers of any length; none is 0.
fn compare_number(one: &[u8], other: &[u8]) -> Ordering {
    let (one, other) = (without_zeros(one), without_zeros(other));
    one.len().cmp(&other.len()).then_with(|| one.cmp(other))
}

fn without_zeros(digits: &[u8]) -> &[u8] {
    &digits[digits.iter().take_while(|digit| **digit == b'0').count()..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_in_the_order_of_dpkg() {
        let ascending = [
            "0.9~rc1-1",
            "0.9~rc1-1+b1",
            "0.9-1",
            "0.9a-1",
            "0.9+x-1",
            "6.1.9-1",
            "6.1.10-1",
            "6.12.9-1",
            "6.12.117-1",
            "6.12.117-1+deb13u1",
            "6.12.0118-1",
            "6.100-1",
            "1:0.1-1",
        ];
        for (at, one) in ascending.iter().enumerate() {
            for (other_at, other) in ascending.iter().enumerate() {
                assert_eq!(compare(one, other), at.cmp(&other_at), "{one} {other}");
            }
        }
        for (one, other) in
            [("1", "1-0"), ("0:1", "1"), ("1.01", "1.1"), ("", "0"), ("a-b-1", "a-b-01")]
        {
            assert_eq!(compare(one, other), Ordering::Equal, "{one} {other}");
        }
    }
}
