//! Host names of guests.

/// The longest that Linux takes (uname(2)).
const LENGTH_MAX: usize = 64;

/// The longest part between two dots (RFC 1035, 2.3.4).
const PART_MAX: usize = 63;

/// Whether a guest can have it: parts of letters, digits and inner hyphens (RFC 1123, 2.1), and underscores, which
/// are in use.
pub(crate) fn check(name: &str) -> Result<(), String> {
    let is_part = |part: &str| {
        let is_of_these =
            part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
        let is_inner = !part.starts_with('-') && !part.ends_with('-');
        !part.is_empty() && part.len() <= PART_MAX && is_of_these && is_inner
    };
    match name.len() <= LENGTH_MAX && name.split('.').all(is_part) {
        true => Ok(()),
        false => Err(format!(
            "not a host name: use at most {LENGTH_MAX} letters, digits, \"_\" and inner \"-\", in \
             parts with dots between (hostname)"
        )),
    }
}

/// A host name of a command line.
///
/// # Errors
///
/// It is none; for people.
pub fn parse(text: &str) -> Result<String, String> {
    check(text).map(|()| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_rfc_1123() {
        for good in ["a", "3com", "a_b", "web-1.example.org", &"x".repeat(63)] {
            assert_eq!(parse(good), Ok(good.to_owned()));
        }
        let long = ["x".repeat(33), "y".repeat(33)].join(".");
        for bad in ["", "-a", "a-", "a..b", ".", "a b", "a\nb", "\u{e9}", &long, &"x".repeat(64)] {
            assert!(parse(bad).is_err(), "{bad:?}");
        }
    }
}
