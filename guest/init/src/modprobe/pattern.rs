//! Patterns by which modules are asked for (fnmatch(3)): `*`, `?`, and sets of characters in brackets. Hyphens and
//! underscores are the same outside of brackets, as in names of modules.

/// Whether a pattern is for this word.
pub fn is_for(pattern: &[u8], word: &[u8]) -> bool {
    let (mut at, mut place) = (0, 0);
    // After the last star, and how far the word was used up for it. Whatever follows the star is tried from there on,
    // so that the time is the product of both lengths at the most.
    let mut star = None;
    while place < word.len() {
        match step(&pattern[at..], word[place]) {
            Step::Star => {
                at += 1;
                star = Some((at, place));
            }
            Step::Same(length) => (at, place) = (at + length, place + 1),
            Step::Other => {
                let Some((after, used)) = star else { return false };
                (at, place) = (after, used + 1);
                star = Some((after, place));
            }
        }
    }
    pattern[at..].iter().all(|&rest| rest == b'*')
}

enum Step {
    Star,
    /// So much of the pattern is for this character.
    Same(usize),
    Other,
}

fn step(pattern: &[u8], character: u8) -> Step {
    let plain = |byte| if byte == b'-' { b'_' } else { byte };
    match pattern.first() {
        Some(b'*') => Step::Star,
        Some(b'?') => Step::Same(1),
        Some(b'[') => match pattern.iter().position(|&byte| byte == b']') {
            Some(end) if is_in(&pattern[1..end], character) => Step::Same(end + 1),
            _ => Step::Other,
        },
        Some(&byte) if plain(byte) == plain(character) => Step::Same(1),
        _ => Step::Other,
    }
}

/// Whether a character is in a set such as `0-9a`.
fn is_in(set: &[u8], character: u8) -> bool {
    let (set, is_wanted) = match set.split_first() {
        Some((b'!' | b'^', rest)) => (rest, false),
        _ => (set, true),
    };
    let mut rest = set;
    let mut is_found = false;
    while let Some((&low, after)) = rest.split_first() {
        let (high, after) = match after {
            [b'-', high, after @ ..] => (*high, after),
            _ => (low, after),
        };
        is_found |= (low..=high).contains(&character);
        rest = after;
    }
    is_found == is_wanted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_for_what_they_say() {
        let check = |pattern: &str, word: &str, expected: bool| {
            let found = is_for(pattern.as_bytes(), word.as_bytes());
            assert_eq!(found, expected, "{pattern} {word}");
        };
        check("rtnl-link-veth", "rtnl-link-veth", true);
        check("rtnl-link-veth", "rtnl_link_veth", true);
        check("rtnl-link-veth", "rtnl-link-vet", false);
        check("rtnl-link-vet", "rtnl-link-veth", false);
        check("block-major-7-*", "block-major-7-0", true);
        check("pci:v00001AF4d*sv*sd*bc*", "pci:v00001AF4d00001005sv1sd2bc03", true);
        check("pci:v00001AF4d*sv*sd*bc*", "pci:v00001AF4d00001005sv1sd2", false);
        check("*a*b*c", "xxaxxbxxbxc", true);
        check("*a*b*c", "xxaxxbxxbxcx", false);
        check("usb:v*d*dc[0-9a]x?", "usb:v1d2dcax7", true);
        check("usb:v*d*dc[0-9a]x?", "usb:v1d2dcbx7", false);
        check("a[!b-d]e", "aae", true);
        check("a[!b-d]e", "ace", false);
        check("", "", true);
        check("*", "", true);
        check("?", "", false);
        check("[a", "a", false);
    }

    #[test]
    fn a_pattern_of_stars_takes_no_long_time() {
        let pattern = "*a".repeat(200);
        let word = "a".repeat(199) + &"b".repeat(20_000);
        assert!(!is_for(pattern.as_bytes(), word.as_bytes()));
    }
}
