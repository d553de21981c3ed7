//! The order of versions, as the UAPI group's specification of it has it for the most part: numbers by their value,
//! words by their letters, a tilde before everything.

use std::cmp::Ordering;

/// Which of two versions, or names of files with versions in them, is the later one.
pub fn compare(one: &str, other: &str) -> Ordering {
    let (mut one, mut other) = (one.as_bytes(), other.as_bytes());
    loop {
        one = skip(one);
        other = skip(other);
        match (one.first(), other.first()) {
            (Some(b'~'), Some(b'~')) => {
                (one, other) = (&one[1..], &other[1..]);
                continue;
            }
            (Some(b'~'), _) => return Ordering::Less,
            (_, Some(b'~')) => return Ordering::Greater,
            (None, None) => return Ordering::Equal,
            (None, Some(_)) => return Ordering::Less,
            (Some(_), None) => return Ordering::Greater,
            (Some(_), Some(_)) => {}
        }
        let is_number = one[0].is_ascii_digit() || other[0].is_ascii_digit();
        let (a, b) = (part(one, is_number), part(other, is_number));
        let order = match is_number {
            true => {
                let (x, y) = (without_zeroes(a), without_zeroes(b));
                x.len().cmp(&y.len()).then_with(|| x.cmp(y))
            }
            false => a.cmp(b),
        };
        if order != Ordering::Equal {
            return order;
        }
        (one, other) = (&one[a.len()..], &other[b.len()..]);
    }
}

/// What separates parts, and means nothing itself.
fn skip(text: &[u8]) -> &[u8] {
    let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'~';
    &text[text.iter().position(is_part).unwrap_or(text.len())..]
}

fn part(text: &[u8], is_number: bool) -> &[u8] {
    let is_in = |byte: &u8| match is_number {
        true => byte.is_ascii_digit(),
        false => byte.is_ascii_alphabetic(),
    };
    &text[..text.iter().position(|byte| !is_in(byte)).unwrap_or(text.len())]
}

fn without_zeroes(digits: &[u8]) -> &[u8] {
    &digits[digits.iter().position(|digit| *digit != b'0').unwrap_or(digits.len())..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_versions_come_later() {
        let ordered = [
            "",
            "5.9",
            "5.10~rc1",
            "5.10",
            "5.10-1",
            "5.10-2.fc34",
            "5.10-10.fc34",
            "6",
            "6.1.0-9-amd64",
            "6.1.0-18-amd64",
            "6.10",
        ];
        for (place, one) in ordered.iter().enumerate() {
            for (other_place, other) in ordered.iter().enumerate() {
                assert_eq!(compare(one, other), place.cmp(&other_place), "{one:?} {other:?}");
            }
        }
        assert_eq!(compare("6.01", "6.1"), Ordering::Equal);
    }
}
