//! Fill of leaves.

use std::collections::BTreeMap;

use bristlecone_cli::failure::Outcome;
use bristlecone_cli::output::{Output, counted};
use serde_json::{Value, json};

use super::bars::bars;

/// Maximum number of buckets of a histogram.
const BUCKETS: u64 = 10;

/// Number of leaves by their number of items.
#[derive(Debug)]
pub struct Leaves(pub BTreeMap<u64, u64>);

impl Leaves {
    /// Returns buckets of equal width up to the fullest leaf, including empty ones in between: least and greatest
    /// number of items, and number of leaves.
    fn buckets(&self) -> Vec<(u64, u64, u64)> {
        let (Some((&least, _)), Some((&most, _))) = (self.0.first_key_value(), self.0.last_key_value())
        else {
            return Vec::new();
        };
        let width = most.div_ceil(BUCKETS).max(1);
        let first = (least - 1) / width;
        let buckets = (first..most.div_ceil(width)).map(|bucket| {
            let (from, to) = (bucket * width + 1, (bucket + 1) * width);
            (from, to, self.0.range(from..=to).map(|(_, leaves)| leaves).sum())
        });
        buckets.collect()
    }

    pub fn json(&self) -> Value {
        let buckets = self.buckets().into_iter();
        buckets.map(|(from, to, count)| json!({ "from": from, "to": to, "count": count })).collect()
    }

    pub fn print(&self, output: &mut Output) -> Outcome {
        let buckets = self.buckets();
        if buckets.len() < 2 {
            return Ok(());
        }
        output.line("  leaves by number of entries")?;
        let of =
            |from, to| if from == to { counted(to, "entry", "entries") } else { format!("{from} to {to}") };
        bars(buckets.iter().map(|&(from, to, count)| (of(from, to), count)), output)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_leaf_is_in_one_bucket() {
        let leaves = Leaves(BTreeMap::from([(3, 1), (31, 5), (32, 2), (64, 9)]));
        let buckets = leaves.buckets();
        assert_eq!(buckets.first(), Some(&(1, 7, 1)));
        assert_eq!(buckets.last(), Some(&(64, 70, 9)));
        assert_eq!(buckets.iter().map(|(_, _, count)| count).sum::<u64>(), 17);
        assert_eq!(buckets.len() as u64, BUCKETS);
    }

    #[test]
    fn no_leaf_has_no_bucket() {
        assert!(Leaves(BTreeMap::new()).buckets().is_empty());
    }
}
