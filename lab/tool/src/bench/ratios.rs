//! Operations in the proportions that PiBench accepts.

use super::op::{Mix, Op};

/// Operations in proportions, as in PiBench.
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Proportions, as PiBench has them")]
pub struct Ratios {
    /// Share of reads, 0 to 1; the five add up to 1.
    #[arg(long = "read_ratio", short = 'r', value_name = "SHARE")]
    read: Option<f64>,
    /// Share of inserts of new keys.
    #[arg(long = "insert_ratio", short = 'i', value_name = "SHARE")]
    insert: Option<f64>,
    /// Share of updates.
    #[arg(long = "update_ratio", short = 'u', value_name = "SHARE")]
    update: Option<f64>,
    /// Share of removals.
    #[arg(long = "remove_ratio", short = 'd', value_name = "SHARE")]
    remove: Option<f64>,
    /// Share of scans.
    #[arg(long = "scan_ratio", short = 's', value_name = "SHARE")]
    scan: Option<f64>,
}

impl Ratios {
    /// Returns the mix; `None` if no proportion is given.
    pub fn mix(&self) -> Result<Option<Mix>, String> {
        const WHOLE: f64 = 1e6;
        let given = [
            (Op::Get, self.read),
            (Op::InsertNew, self.insert),
            (Op::Update, self.update),
            (Op::Remove, self.remove),
            (Op::Scan, self.scan),
        ];
        if given.iter().all(|(_, share)| share.is_none()) {
            return Ok(None);
        }
        let sum: f64 = given.iter().filter_map(|(_, share)| *share).sum();
        let possible = given.iter().all(|(_, share)| share.is_none_or(|share| (0.0..=1.0).contains(&share)));
        if !possible || (sum - 1.0).abs() > 1.0 / WHOLE {
            return Err(format!("proportions of 0 to 1 must add up to 1: these add up to {sum}"));
        }
        let share = |share: Option<f64>| (share.unwrap_or(0.0) * WHOLE).round() as u32;
        Ok(Some(Mix::of(&given.map(|(op, given)| (op, share(given))))))
    }
}
