//! Sizes of memory as users write them: `512M`, `8G`, `1.5G`, `65536K`, `1073741824`.

/// Why a text is not a size.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Not a number with an optional unit.
    #[error("not a size; write a number and a unit, such as 512M or 8G")]
    Syntax,
    /// More than fits 64 bits.
    #[error("too large")]
    TooLarge,
}

/// Parses a size: a decimal number, then optionally K, M, G or T (with optional `iB` or `B`), in
/// powers of 1024. Without a unit it is bytes.
pub fn parse(text: &str) -> Result<u64, Error> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit = unit.to_ascii_lowercase();
    let unit = unit.strip_suffix("ib").or(unit.strip_suffix('b')).unwrap_or(&unit);
    let shift = match unit {
        "" => 0,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        "t" => 40,
        _ => return Err(Error::Syntax),
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() || (number.contains('.') && (fraction.is_empty() || shift == 0)) {
        return Err(Error::Syntax);
    }
    let whole: u128 = parse_digits(whole)?;
    let numerator = parse_digits(if fraction.is_empty() { "0" } else { fraction })?;
    let denominator = 10u128.checked_pow(fraction.len() as u32).ok_or(Error::TooLarge)?;
    let part = numerator.checked_mul(1 << shift).ok_or(Error::TooLarge)? / denominator;
    let total = whole.checked_mul(1 << shift).and_then(|bytes| bytes.checked_add(part));
    total.and_then(|bytes| u64::try_from(bytes).ok()).ok_or(Error::TooLarge)
}

fn parse_digits(digits: &str) -> Result<u128, Error> {
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(Error::Syntax);
    }
    digits.parse().map_err(|_| Error::TooLarge)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Result<u64, Error>) {
        assert_eq!(parse(text), expected, "{text:?}");
    }

    #[test]
    fn sizes() {
        check("1", Ok(1));
        check("512M", Ok(512 << 20));
        check("512m", Ok(512 << 20));
        check("8G", Ok(8 << 30));
        check("8GiB", Ok(8 << 30));
        check("8gb", Ok(8 << 30));
        check("1.5G", Ok(3 << 29));
        check("0.25K", Ok(256));
        check("64k", Ok(64 << 10));
        check("2T", Ok(2 << 40));
    }

    #[test]
    fn not_sizes() {
        for text in ["", "M", "x", "1X", "-1", "1..5G", "1.G", ".5G", "1.5", "1 G", "１G", "1GG"] {
            check(text, Err(Error::Syntax));
        }
        check("99999999999999999999", Err(Error::TooLarge));
        check("16777216T", Err(Error::TooLarge));
        check("9999999999999999999999999999999999999999999G", Err(Error::TooLarge));
        check("1.99999999999999999999999999999999999999999999G", Err(Error::TooLarge));
    }
}
