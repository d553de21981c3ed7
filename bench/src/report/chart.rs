//! Bar charts: for each number a group of bars, all relative to the same, which is a line.

use std::fmt::Write;

use crate::results::Results;
use crate::systems::Family;

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
struct Group {
    label: &'static str,
    /// One for each series.
    bars: Vec<Option<f64>>,
}

/// Every family's speed, relative to the host's.
pub fn against_host(results: &Results) -> String {
    let shown = [Family::Biv, Family::Gvisor, Family::Uml, Family::Tcg];
    let families: Vec<Family> =
        shown.into_iter().filter(|family| !results.members(*family).is_empty()).collect();
    let groups = results.numbers().into_iter().filter_map(|number| {
        let host = results.best(Family::Host, number)?.median;
        let speed =
            |family: &Family| Some(number.unit.speed(results.best(*family, number)?.median, host));
        Some(Group { label: number.title, bars: families.iter().map(speed).collect() })
    });
    let names: Vec<&str> = families.iter().map(|family| family.name()).collect();
    draw(
        "Speed, as a fraction of the host's (longer is better)",
        &names,
        &groups.collect::<Vec<_>>(),
    )
}

/// Every mode's speed, relative to what users get.
pub fn variants(results: &Results) -> String {
    let mut members = results.members(Family::Biv);
    members.retain(|&member| results.systems[member].is_whole());
    let (Some(&first), others) = (members.first(), members.get(1..).unwrap_or_default()) else {
        return draw("", &[], &[]);
    };
    let groups = results.numbers().into_iter().filter_map(|number| {
        let own = results.spread(first, number)?.median;
        let speed =
            |&other: &usize| Some(number.unit.speed(results.spread(other, number)?.median, own));
        Some(Group { label: number.title, bars: others.iter().map(speed).collect() })
    });
    let names: Vec<&str> =
        others.iter().map(|&other| results.systems[other].name.as_str()).collect();
    draw("Speed of each mode, as a fraction of biv's", &names, &groups.collect::<Vec<_>>())
}

fn draw(title: &str, series: &[&str], groups: &[Group]) -> String {
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
        let groups = [Group { label: "x", bars: vec![Some(7.0), None, Some(0.5)] }];
        let svg = draw("title", &["a", "b", "c"], &groups);
        assert!(svg.contains(">7.00</text>") && svg.contains("width=\"450.0\""), "{svg}");
        assert!(svg.contains("width=\"180.0\""));
        assert_eq!(svg.matches("<svg").count(), svg.matches("</svg>").count());
    }
}
