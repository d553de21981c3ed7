//! Tables that people read as they are, and amounts in them.

/// Three digits, or all before the point.
pub fn amount(value: f64) -> String {
    let places = match value.abs() {
        small if small < 10.0 => 2,
        middle if middle < 100.0 => 1,
        _ => 0,
    };
    format!("{value:.places$}")
}

/// Rows of cells as Markdown, padded so that it can be read as it is.
pub fn markdown(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column| {
        let cells = rows.iter().filter_map(|row| row.get::<usize>(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for (index, row) in rows.iter().enumerate() {
        for (column, width) in widths.iter().enumerate() {
            let cell = row.get(column).map_or("", String::as_str);
            let padding = " ".repeat(width - cell.chars().count());
            // Names to the left, numbers to the right.
            let (before, after) =
                if column == 0 { ("", padding.as_str()) } else { (padding.as_str(), "") };
            text.push_str(&format!("| {before}{cell}{after} "));
        }
        text.push_str("|\n");
        if index == 0 {
            for (column, width) in widths.iter().enumerate() {
                let dashes = "-".repeat(width + 1);
                text.push_str(&format!("|{}{dashes}", if column == 0 { " " } else { "" }));
                text.push_str(if column == 0 { "" } else { ":" });
            }
            text.push_str("|\n");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_markdown_that_lines_up() {
        let rows = [vec!["a".to_owned(), "long".into()], vec!["name".into(), "1".into()]];
        assert_eq!(markdown(&rows), "| a    | long |\n| -----|-----:|\n| name |    1 |\n");
    }
}
