//! The bar charts of a run: for each number a group of bars.

use crate::bars::{Group, draw};
use crate::results::Results;
use crate::systems::Family;

/// Every family's speed, relative to the host's.
pub fn against_host(results: &Results) -> String {
    let shown = [Family::Biv, Family::Gvisor, Family::Uml, Family::Tcg];
    let families: Vec<Family> =
        shown.into_iter().filter(|family| !results.members(*family).is_empty()).collect();
    let groups = results.numbers().into_iter().filter_map(|number| {
        let host = results.best(Family::Host, number)?.median;
        let speed =
            |family: &Family| Some(number.unit.speed(results.best(*family, number)?.median, host));
        Some(Group { label: number.title.into(), bars: families.iter().map(speed).collect() })
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
        Some(Group { label: number.title.into(), bars: others.iter().map(speed).collect() })
    });
    let names: Vec<&str> =
        others.iter().map(|&other| results.systems[other].name.as_str()).collect();
    draw("Speed of each mode, as a fraction of biv's", &names, &groups.collect::<Vec<_>>())
}
