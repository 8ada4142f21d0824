//! Damage found by reads. A read cannot return an error: it returns what is readable, and records
//! the damage here.

use std::sync::Mutex;

use bristlecone_pm::Issue;
use bristlecone_pm::sync::wait;

/// Maximum number of issues kept.
const ISSUES_MAX: usize = 64;

/// Damage that reads of one tree have encountered since it was opened.
#[derive(Debug, Default)]
pub struct Damage(Mutex<Vec<Issue>>);

impl Damage {
    /// Records an issue, without duplicates.
    #[cold]
    pub fn note(&self, issue: Issue) {
        let mut issues = wait::lock(&self.0);
        if issues.len() < ISSUES_MAX && !issues.contains(&issue) {
            issues.push(issue);
        }
    }

    /// Returns the recorded issues.
    pub fn issues(&self) -> Vec<Issue> {
        wait::lock(&self.0).clone()
    }
}
