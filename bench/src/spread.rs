//! What many measurements of one thing come to.

/// The middle, the smallest and the largest.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spread {
    /// Half are smaller.
    pub median: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
}

impl Spread {
    /// Of some values, if there are any.
    pub fn of(mut values: Vec<f64>) -> Option<Spread> {
        values.sort_by(f64::total_cmp);
        let (min, max, middle) = (*values.first()?, *values.last()?, values.len() / 2);
        let upper = values[middle];
        let median = if values.len() % 2 == 1 { upper } else { (values[middle - 1] + upper) / 2.0 };
        Some(Spread { median, min, max })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_of_an_even_count_lies_between() {
        assert_eq!(Spread::of(vec![]), None);
        let spread = Spread::of(vec![4.0, 1.0, 3.0, 2.0]).unwrap();
        assert_eq!(spread, Spread { median: 2.5, min: 1.0, max: 4.0 });
        assert_eq!(Spread::of(vec![9.0, 1.0, 3.0]).unwrap().median, 3.0);
    }
}
