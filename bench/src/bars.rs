//! Bar charts: for each thing a group of bars, all relative to the same, which is a line.

use std::fmt::Write;

/// Sizes, in units of the picture.
const ROW: usize = 13;
const LEFT: usize = 250;
const WIDTH: f64 = 360.0;
const TOP: usize = 58;

/// Where bars end that would be longer; their number still says how long.
const LONGEST: f64 = 1.25;

/// One colour for each series.
const COLOURS: [&str; 6] = ["#2563eb", "#d97706", "#059669", "#7c3aed", "#dc2626", "#64748b"];

/// Bars that belong together.
#[derive(Debug)]
pub struct Group {
    /// What they are about.
    pub label: String,
    /// One for each series, where there is one.
    pub bars: Vec<Option<f64>>,
}

/// The picture (SVG): bars of length 1 end at the line.
pub fn draw(title: &str, series: &[&str], groups: &[Group]) -> String {
    let group_height = ROW * series.len() + 9;
    let height = TOP + group_height * groups.len() + 10;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"760\" height=\"{height}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"760\" height=\"{height}\" fill=\"#fff\"/>\n\
         <text x=\"8\" y=\"20\" font-size=\"15\">{title}</text>\n"
    );
    for (index, name) in series.iter().enumerate() {
        let (x, colour) = (LEFT + 110 * index, COLOURS[index % COLOURS.len()]);
        let _ = writeln!(
            svg,
            "<rect x=\"{x}\" y=\"32\" width=\"11\" height=\"11\" fill=\"{colour}\"/>\
             <text x=\"{}\" y=\"42\">{name}</text>",
            x + 16
        );
    }
    for (index, group) in groups.iter().enumerate() {
        let top = TOP + group_height * index;
        let middle = top + group_height / 2;
        let _ = writeln!(svg, "<text x=\"8\" y=\"{middle}\">{}</text>", group.label);
        for (place, bar) in group.bars.iter().enumerate() {
            let Some(bar) = bar else { continue };
            draw_bar(&mut svg, top + ROW * place, *bar, COLOURS[place % COLOURS.len()]);
        }
    }
    let one = LEFT as f64 + WIDTH;
    let _ = writeln!(
        svg,
        "<line x1=\"{one}\" y1=\"{}\" x2=\"{one}\" y2=\"{}\" stroke=\"#333\"/>\n</svg>",
        TOP - 6,
        height - 8
    );
    svg
}

fn draw_bar(svg: &mut String, y: usize, bar: f64, colour: &str) {
    let length = bar.clamp(0.0, LONGEST) * WIDTH;
    let _ = writeln!(
        svg,
        "<rect x=\"{LEFT}\" y=\"{y}\" width=\"{length:.1}\" height=\"{}\" fill=\"{colour}\"/>\
         <text x=\"{:.0}\" y=\"{}\" font-size=\"10\">{bar:.2}</text>",
        ROW - 2,
        LEFT as f64 + length + 4.0,
        y + ROW - 3
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_bars_end_but_say_how_long_they_are() {
        let groups = [Group { label: "x".into(), bars: vec![Some(7.0), None, Some(0.5)] }];
        let svg = draw("title", &["a", "b", "c"], &groups);
        assert!(svg.contains(">7.00</text>") && svg.contains("width=\"450.0\""), "{svg}");
        assert!(svg.contains("width=\"180.0\""));
        assert_eq!(svg.matches("<svg").count(), svg.matches("</svg>").count());
    }
}
