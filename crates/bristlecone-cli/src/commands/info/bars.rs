//! Histograms for people.

use bristlecone_cli::failure::Outcome;
use bristlecone_cli::output::{Output, grouped};

use crate::table::{Align, Table};

/// Columns of the longest bar.
const BAR: u64 = 40;

/// Prints a line for each bucket: its label, its count, and a bar.
pub fn bars(buckets: impl Iterator<Item = (String, u64)>, output: &mut Output) -> Outcome {
    let buckets: Vec<_> = buckets.collect();
    let most = buckets.iter().map(|(_, count)| *count).max().unwrap_or(1).max(1);
    let mut table = Table::new(&[("", Align::Right), ("", Align::Right), ("", Align::Left)]);
    for (of, count) in buckets {
        let bar = "#".repeat((count * BAR).div_ceil(most) as usize);
        table.row([format!("    {of}"), grouped(count), bar]);
    }
    table.print(output)
}
