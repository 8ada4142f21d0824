//! Mutations of the code under test.

use std::fmt;

use crate::model::trace::{Site, SiteKind};

/// A mutation of the code under test at one site.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mutation {
    /// The flush, fence or order has no effect.
    Remove(Site),
    /// The flush writes back the line after the right one.
    Shift(Site),
    /// The publish comes before the store that preceded it.
    Swap(Site),
    /// The store is visible, but never reaches the medium.
    Lose(Site),
}

impl fmt::Display for Mutation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Mutation::Remove(site) => write!(f, "remove {site}"),
            Mutation::Shift(site) => write!(f, "shift {site}"),
            Mutation::Swap(site) => write!(f, "swap {site}"),
            Mutation::Lose(site) => write!(f, "lose {site}"),
        }
    }
}

/// Returns every mutation of a site.
pub fn mutations_of(site: Site) -> Vec<Mutation> {
    match site.kind {
        SiteKind::Flush => vec![Mutation::Remove(site), Mutation::Shift(site)],
        SiteKind::Fence | SiteKind::Order => vec![Mutation::Remove(site)],
        SiteKind::Publish | SiteKind::Swap => vec![Mutation::Swap(site), Mutation::Lose(site)],
        SiteKind::Store | SiteKind::Derived => vec![Mutation::Lose(site)],
    }
}
