//! Lengths of keys or values.

use bristlecone_cli::failure::Outcome;
use bristlecone_cli::output::{Output, counted};
use serde_json::{Value, json};

use super::bars::bars;

/// A histogram of lengths: one bucket for each power of two.
#[derive(Debug)]
pub struct Lengths {
    count: u64,
    total: u64,
    least: u64,
    most: u64,
    /// At index `n`: number of lengths of `n` bits.
    buckets: [u64; 65],
}

impl Default for Lengths {
    fn default() -> Self {
        Self { count: 0, total: 0, least: u64::MAX, most: 0, buckets: [0; 65] }
    }
}

impl Lengths {
    pub fn add(&mut self, bytes: u64) {
        self.count += 1;
        self.total += bytes;
        self.least = self.least.min(bytes);
        self.most = self.most.max(bytes);
        self.buckets[(u64::BITS - bytes.leading_zeros()) as usize] += 1;
    }

    pub fn count(&self) -> u64 {
        self.count
    }

    pub fn total(&self) -> u64 {
        self.total
    }

    /// Returns the nonempty buckets: least and greatest length within the observed range, and
    /// count.
    fn filled(&self) -> impl Iterator<Item = (u64, u64, u64)> {
        let filled = self.buckets.iter().enumerate().filter(|(_, count)| **count > 0);
        filled.map(|(bits, &count)| {
            let (from, to) = if bits == 0 { (0, 0) } else { (1 << (bits - 1), u64::MAX >> (64 - bits)) };
            (from.max(self.least), to.min(self.most), count)
        })
    }

    pub fn json(&self) -> Value {
        let histogram =
            self.filled().map(|(from, to, count)| json!({ "from": from, "to": to, "count": count }));
        json!({
            "min": (self.count > 0).then_some(self.least),
            "max": (self.count > 0).then_some(self.most),
            "mean": ratio(self.total, self.count),
            "total": self.total,
            "histogram": histogram.collect::<Vec<_>>(),
        })
    }

    pub fn print(&self, what: &str, output: &mut Output) -> Outcome {
        if self.count == 0 {
            return Ok(());
        }
        let mean = ratio(self.total, self.count);
        output.line(format_args!("  {what}: {}, {mean:.1} on average", span(self.least, self.most)))?;
        if self.filled().count() == 1 {
            return Ok(());
        }
        bars(self.filled().map(|(from, to, count)| (span(from, to), count)), output)
    }
}

/// Returns the part as a share of the whole; 0 if there is nothing.
pub fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// Returns `4 to 12 bytes`, or `8 bytes`.
fn span(least: u64, most: u64) -> String {
    if least == most { counted(most, "byte", "bytes") } else { format!("{least} to {most} bytes") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_is_in_one_bucket() {
        let mut lengths = Lengths::default();
        for bytes in [0, 1, 2, 3, 4, 7, 8, 900, u64::MAX] {
            lengths.add(bytes % (1 << 40));
        }
        let filled: Vec<_> = lengths.filled().collect();
        assert_eq!(filled[..5], [(0, 0, 1), (1, 1, 1), (2, 3, 2), (4, 7, 2), (8, 15, 1)]);
        assert_eq!(filled.iter().map(|(_, _, count)| count).sum::<u64>(), 9);
        assert_eq!(filled.last(), Some(&(1 << 39, (1 << 40) - 1, 1)));
    }

    #[test]
    fn nothing_has_no_lengths() {
        assert_eq!(Lengths::default().json()["min"], Value::Null);
        assert_eq!(Lengths::default().filled().count(), 0);
    }
}
