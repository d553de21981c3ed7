//! Variables in a compose file: `$NAME`, `${NAME}`, `${NAME:-default}`, `${NAME-default}`, `${NAME:?message}`,
//! `${NAME?message}`; `$$` is a dollar sign (Compose specification, "Interpolation").

use serde_json::Value;

/// Replaces the variables in all texts of a document, but not in the keys.
///
/// # Errors
///
/// A variable that is required is not set, or a dollar sign begins none.
pub fn all(value: &mut Value, of: &dyn Fn(&str) -> Option<String>) -> Result<(), String> {
    match value {
        Value::String(text) => *text = replaced(text, of)?,
        Value::Array(values) => values.iter_mut().try_for_each(|value| all(value, of))?,
        Value::Object(values) => values.values_mut().try_for_each(|value| all(value, of))?,
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
    Ok(())
}

/// A text with the values of its variables. One that is not set is empty.
///
/// # Errors
///
/// See [`all`].
pub fn replaced(text: &str, of: &dyn Fn(&str) -> Option<String>) -> Result<String, String> {
    let (mut made, mut rest) = (String::new(), text);
    while let Some((before, behind)) = rest.split_once('$') {
        made.push_str(before);
        if let Some(behind) = behind.strip_prefix('$') {
            made.push('$');
            rest = behind;
        } else if let Some(inside) = behind.strip_prefix('{') {
            let end = closing(inside).ok_or_else(|| format!("${{ without }} in {text:?}"))?;
            made.push_str(&braced(&inside[..end], text, of)?);
            rest = &inside[end + 1..];
        } else {
            let (name, behind) = behind.split_at(name_length(behind));
            if name.is_empty() {
                return Err(format!("$ without a name in {text:?}; $$ is a dollar sign"));
            }
            made.push_str(&of(name).unwrap_or_default());
            rest = behind;
        }
    }
    made.push_str(rest);
    Ok(made)
}

/// Where the brace is that closes the one before this text; braces may be in it.
fn closing(text: &str) -> Option<usize> {
    let mut depth = 0_usize;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'{' => depth += 1,
            b'}' if depth == 0 => return Some(at),
            b'}' => depth -= 1,
            _ => {}
        }
    }
    None
}

/// Bytes of the name of a variable at the beginning of a text.
fn name_length(text: &str) -> usize {
    let is_first = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_';
    let is_other = |byte: &u8| is_first(*byte) || byte.is_ascii_digit();
    if text.bytes().next().is_some_and(is_first) {
        text.bytes().take_while(is_other).count()
    } else {
        0
    }
}

/// The value of what is in braces. A default may have variables itself, but not in another default's.
fn braced(inside: &str, text: &str, of: &dyn Fn(&str) -> Option<String>) -> Result<String, String> {
    let (name, rest) = inside.split_at(name_length(inside));
    if name.is_empty() {
        return Err(format!("${{ without a name in {text:?}"));
    }
    let (counts_empty, word) = match rest.strip_prefix(':') {
        Some(word) => (false, word),
        None => (true, rest),
    };
    let value = of(name).filter(|value| counts_empty || !value.is_empty());
    match (word.chars().next(), value) {
        (None, value) if counts_empty => Ok(value.unwrap_or_default()),
        (Some('-' | '?'), Some(value)) => Ok(value),
        (Some('-'), None) => flat(&word[1..], of),
        (Some('?'), None) if word.len() > 1 => Err(format!("{name}: {}", &word[1..])),
        (Some('?'), None) => Err(format!("{name} is not set")),
        _ => Err(format!("{inside:?} is no variable in {text:?}")),
    }
}

/// A default: what is in braces in it is not looked into, so that no text makes this call itself for ever.
fn flat(text: &str, of: &dyn Fn(&str) -> Option<String>) -> Result<String, String> {
    if text.contains("${") {
        return Err(format!("a default that has another variable in braces: {text:?}"));
    }
    replaced(text, of)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(name: &str) -> Option<String> {
        match name {
            "A" => Some("a".into()),
            "EMPTY" => Some(String::new()),
            "MONEY" => Some("$A".into()),
            _ => None,
        }
    }

    #[test]
    fn variables_are_replaced() {
        for (text, expected) in [
            ("", ""),
            ("no variable", "no variable"),
            ("$A and ${A}b", "a and ab"),
            ("$A.$A_", "a."),
            ("$$A $$", "$A $"),
            ("${NONE}", ""),
            ("${NONE:-x y}${EMPTY:-z}", "x yz"),
            ("${NONE-x}${EMPTY-z}", "x"),
            ("${NONE:-$A}", "a"),
            ("${NONE:-{}}", "{}"),
            ("${A:?is missing}", "a"),
            ("${EMPTY?}", ""),
            // A value is no text of the file.
            ("$MONEY", "$A"),
        ] {
            assert_eq!(replaced(text, &of).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_is_no_variable_is_refused() {
        for (text, word) in [
            ("$", "$$"),
            ("costs 5 $ a piece", "$$"),
            ("$1", "$$"),
            ("${A", "without }"),
            ("${}", "without a name"),
            ("${A+x}", "no variable"),
            ("${A:}", "no variable"),
            ("${NONE:?set it}", "NONE: set it"),
            ("${EMPTY:?}", "EMPTY is not set"),
            ("${NONE:-${A}}", "default"),
        ] {
            let refused = replaced(text, &of).unwrap_err();
            assert!(refused.contains(word), "{text}: {refused}");
        }
    }

    #[test]
    fn keys_stay_as_they_are() {
        let mut document = serde_json::json!({"$A": ["$A", 1, {"x": "$A"}]});
        all(&mut document, &of).unwrap();
        assert_eq!(document, serde_json::json!({"$A": ["a", 1, {"x": "a"}]}));
    }
}
