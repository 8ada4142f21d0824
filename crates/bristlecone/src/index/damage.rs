//! Damage found by reads. A read cannot return an error: it returns what is readable, and records
//! the damage here.

use std::sync::Mutex;

use bristlecone_pm::Finding;
use bristlecone_pm::sync::wait;

/// Maximum number of findings kept.
const FINDINGS_MAX: usize = 64;

/// Damage that reads of one tree have encountered since it was opened.
#[derive(Debug, Default)]
pub struct Damage(Mutex<Vec<Finding>>);

impl Damage {
    /// Records a finding, without duplicates.
    #[cold]
    pub fn note(&self, finding: Finding) {
        let mut findings = wait::lock(&self.0);
        if findings.len() < FINDINGS_MAX && !findings.contains(&finding) {
            findings.push(finding);
        }
    }

    /// Returns the recorded findings.
    pub fn findings(&self) -> Vec<Finding> {
        wait::lock(&self.0).clone()
    }
}
