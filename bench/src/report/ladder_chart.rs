//! The ladder as a picture: a row for each technique, a column for each work, in each a bar that says
//! how much longer that work takes without that technique. Scales are logarithmic, and a line through
//! each bar goes from the smallest to the largest factor.

use std::fmt::Write;

use crate::spread::Spread;

use crate::number::Number;
use crate::results::Factor;

use super::ladder::Rung;

/// Sizes, in units of the picture.
const ROW: f64 = 21.0;
const LEFT: f64 = 170.0;
const COLUMN: f64 = 112.0;
const TOP: f64 = 74.0;
/// Of a column, what bars have; the rest is for the number.
const SCALE: f64 = 76.0;

/// The scale, as powers of two.
const LEAST: f64 = -0.5;
const MOST: f64 = 3.0;

/// Bars of what takes longer, of what takes less, and of what is not certain.
const SLOWER: &str = "#2563eb";
const FASTER: &str = "#d97706";
const UNCERTAIN: &str = "#94a3b8";

/// Draw it.
pub fn draw(numbers: &[&Number], rungs: &[Rung]) -> String {
    let width = LEFT + COLUMN * numbers.len() as f64 + 8.0;
    let height = TOP + ROW * rungs.len() as f64 + 12.0;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{width}\" height=\"{height}\" fill=\"#fff\"/>\n\
         <text x=\"8\" y=\"20\" font-size=\"15\">Time without a technique, as a multiple of the \
         time \
         with it</text>\n\
         <text x=\"8\" y=\"38\" font-size=\"11\" fill=\"#555\">Logarithmic; lines: smallest to \
         largest \
         of all rounds; grey: may be chance; orange: faster without. direct-...: against direct, \
         all \
         others against biv as users get it</text>\n"
    );
    for (index, number) in numbers.iter().enumerate() {
        let x = column(index);
        let one = x + along(1.0);
        let _ = writeln!(
            svg,
            "<text x=\"{x:.1}\" y=\"62\">{}</text>\
             <line x1=\"{one:.1}\" y1=\"{:.1}\" x2=\"{one:.1}\" y2=\"{:.1}\" stroke=\"#333\"/>",
            number.name,
            TOP - 6.0,
            height - 8.0
        );
    }
    for (index, rung) in rungs.iter().enumerate() {
        let y = TOP + ROW * index as f64;
        let _ = writeln!(svg, "<text x=\"8\" y=\"{:.1}\">{}</text>", y + 12.0, rung.name);
        for (index, factor) in rung.factors.iter().enumerate() {
            if let Some(factor) = factor {
                bar(&mut svg, column(index), y, *factor);
            }
        }
    }
    svg.push_str("</svg>\n");
    svg
}

fn column(index: usize) -> f64 {
    LEFT + COLUMN * index as f64
}

/// How far along the scale a factor is; what is beyond its ends is at these.
fn along(factor: f64) -> f64 {
    (factor.log2().clamp(LEAST, MOST) - LEAST) / (MOST - LEAST) * SCALE
}

fn bar(svg: &mut String, x: f64, y: f64, Factor { spread, is_certain }: Factor) {
    let Spread { median, min, max } = spread;
    let colour = match (is_certain, median > 1.0) {
        (true, true) => SLOWER,
        (true, false) => FASTER,
        (false, _) => UNCERTAIN,
    };
    let [one, to, from_min, to_max] = [1.0, median, min, max].map(along);
    let (start, length) = (one.min(to), (to - one).abs());
    let middle = y + 8.0;
    let _ = writeln!(
        svg,
        "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{length:.1}\" height=\"12\" fill=\"{colour}\"/>\
         <line x1=\"{:.1}\" y1=\"{middle:.1}\" x2=\"{:.1}\" y2=\"{middle:.1}\" stroke=\"#111\"/>\
         <text x=\"{:.1}\" y=\"{:.1}\" font-size=\"10\">{median:.2}</text>",
        x + start,
        y + 2.0,
        x + from_min,
        x + to_max,
        x + one.max(to_max) + 4.0,
        y + 12.0
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::ladder;

    /// What the only bar of the picture is like, for a work that takes 10 with everything.
    fn check(times: &[f64], colour: &str, text: &str) {
        let results = ladder::tests::without_links(times);
        let rungs = ladder::rungs(&results).unwrap();
        let svg = draw(&ladder::numbers(&results), &rungs);
        assert!(svg.contains(&format!("height=\"12\" fill=\"{colour}\"")), "{svg}");
        assert!(
            svg.contains(&format!(">{text}</text>")) && svg.contains(">no-links</text>"),
            "{svg}"
        );
        assert!(svg.ends_with("</svg>\n"));
    }

    #[test]
    fn colours_say_whether_it_is_certain() {
        check(&[20.0, 15.0, 25.0], SLOWER, "2.00");
        check(&[8.0, 9.0, 7.0], FASTER, "0.80");
        check(&[12.0, 9.0, 13.0], UNCERTAIN, "1.20");
        check(&[5000.0], SLOWER, "500.00");
    }

    #[test]
    fn scales_have_ends() {
        assert_eq!((along(1e9), along(1e-9)), (SCALE, 0.0));
        assert!(along(1.0) > 0.0 && along(2.0) > along(1.0));
    }
}
