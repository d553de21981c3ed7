//! The order in which services start.

use std::collections::{BTreeMap, BTreeSet};

/// Names after all those that they depend on; names that nothing orders are in that of the alphabet.
///
/// # Errors
///
/// One depends on what is not there, or on itself.
pub fn order(dependencies: &BTreeMap<&str, Vec<&str>>) -> Result<Vec<String>, String> {
    for (name, needed) in dependencies {
        if let Some(unknown) = needed.iter().find(|needed| !dependencies.contains_key(*needed)) {
            return Err(format!("service {name} depends on {unknown}, which is none"));
        }
    }
    let mut ordered: Vec<String> = Vec::new();
    let mut open: BTreeSet<&str> = dependencies.keys().copied().collect();
    while !open.is_empty() {
        let is_free = |name: &&str| dependencies[*name].iter().all(|needed| !open.contains(needed));
        let free: Vec<&str> = open.iter().copied().filter(is_free).collect();
        if free.is_empty() {
            let names: Vec<&str> = open.into_iter().collect();
            return Err(format!("services depend on each other in a circle: {}", names.join(", ")));
        }
        for name in free {
            open.remove(name);
            ordered.push(name.to_owned());
        }
    }
    Ok(ordered)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn services_come_after_what_they_depend_on() {
        let all = BTreeMap::from([
            ("a", vec!["web"]),
            ("cache", vec![]),
            ("db", vec![]),
            ("web", vec!["db", "cache"]),
        ]);
        assert_eq!(order(&all).unwrap(), ["cache", "db", "web", "a"]);
        assert_eq!(order(&BTreeMap::new()).unwrap(), [""; 0]);
    }

    #[test]
    fn what_has_no_order_is_refused() {
        let circle = BTreeMap::from([("a", vec!["b"]), ("b", vec!["a"]), ("c", vec![])]);
        assert!(order(&circle).unwrap_err().ends_with("a, b"));
        assert!(order(&BTreeMap::from([("a", vec!["a"])])).is_err());
        assert!(order(&BTreeMap::from([("a", vec!["b"])])).unwrap_err().contains("depends on b"));
    }
}
