//! What `biv run --stats` says at a machine's end: lines of two spaces, a name, spaces and a number, under
//! headings.

/// The counters of a report whose names contain one of `words`, in the order of the report. What else was said
/// before it is no counter.
pub fn among(report: &str, words: &[String]) -> Vec<(String, f64)> {
    let is_wanted = |name: &str| words.iter().any(|word| name.contains(word.as_str()));
    report.lines().filter_map(counter).filter(|(name, _)| is_wanted(name)).collect()
}

/// `  mirror faults                           4,132`; a percentage is a number, too.
fn counter(line: &str) -> Option<(String, f64)> {
    let line = line.strip_prefix("  ")?.trim_end();
    let (name, number) = line.rsplit_once("  ")?;
    let value = number.trim().trim_end_matches('%').replace(',', "").parse().ok()?;
    Some((name.trim_end().to_owned(), value)).filter(|(name, _)| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_found_by_words_in_their_names() {
        let report = "@ idle\n  cc -c  file.c\nmemory\n  TLB misses                        \
                      40,056\n  \
            mirror faults                      4,132\nuser code run directly\n  share of all \
            time    3.1%\n";
        let check = |words: &[&str], expected: &[(&str, f64)]| {
            let words: Vec<String> = words.iter().map(|&word| word.into()).collect();
            let found = among(report, &words);
            let found: Vec<_> = found.iter().map(|(name, value)| (name.as_str(), *value)).collect();
            assert_eq!(found, expected);
        };
        check(&["mirror", "share"], &[("mirror faults", 4132.0), ("share of all time", 3.1)]);
        check(&["TLB"], &[("TLB misses", 40056.0)]);
        check(&[], &[]);
        check(&["file"], &[]);
    }
}
