//! What reads come across that is wrong. They have no error to return: they show what they can, and
//! leave word of what they cannot.

use std::sync::Mutex;

use bristlecone_pm::Finding;
use bristlecone_pm::sync::wait;

/// Findings that are kept; the first tells enough.
const FINDINGS_MAX: usize = 64;

/// What reads of one tree came across since it was opened.
#[derive(Debug, Default)]
pub struct Damage(Mutex<Vec<Finding>>);

impl Damage {
    /// Notes what is wrong, once.
    #[cold]
    pub fn note(&self, finding: Finding) {
        let mut findings = wait::lock(&self.0);
        if findings.len() < FINDINGS_MAX && !findings.contains(&finding) {
            findings.push(finding);
        }
    }

    /// Returns what was noted so far.
    pub fn findings(&self) -> Vec<Finding> {
        wait::lock(&self.0).clone()
    }
}
