//! Whether the keys of an entry were present before it: known once its changes are applied.

use super::Pending;
use crate::transaction::record::{FLAGS_AT, bytes_of_first, mark_of};

/// How many changes of an entry count, from the first on, and which of their keys were present before. An entry of
/// [`Kind::Each`](super::entry::Kind) has at most 16.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Done {
    count: u16,
    known: u16,
    present: u16,
}

impl Done {
    /// Nothing was changed.
    pub const NONE: Self = Self { count: 0, known: 0, present: 0 };

    /// One key was changed. `None`: the write did not look.
    #[inline]
    pub fn one(existed: Option<bool>) -> Self {
        Self { count: 1, known: u16::from(existed.is_some()), present: u16::from(existed == Some(true)) }
    }

    /// Returns the same with one change more.
    #[inline]
    pub fn and(self, existed: Option<bool>) -> Self {
        let Self { count, known, present } = Self::one(existed);
        let at = self.count;
        Self { count: at + count, known: self.known | known << at, present: self.present | present << at }
    }

    /// Returns the number of changes.
    #[inline]
    pub fn count(self) -> u16 {
        self.count
    }

    /// Returns whether any of the writes looked whether its key was present before.
    #[inline]
    pub fn has_looked(self) -> bool {
        self.known != 0
    }

    /// Returns whether each key was present before.
    pub fn existed(self) -> impl Iterator<Item = Option<bool>> {
        let is_set = |bits: u16, at| bits >> at & 1 != 0;
        (0..self.count).map(move |at| is_set(self.known, at).then(|| is_set(self.present, at)))
    }
}

impl Pending<'_> {
    /// Records in the entry which keys were present before, for its first changes. `body` is that of the entry. In a body
    /// that has a file of its own, which is durable already, it stays unknown.
    pub fn mark(&self, body: &[u8], existed: impl Iterator<Item = Option<bool>>) {
        if self.head.aside {
            return;
        }
        let mut at = 0;
        for existed in existed {
            let mark = mark_of(existed);
            if mark != 0 {
                self.journal.ring.mark(self.lsn, at + FLAGS_AT, mark);
            }
            let Some(bytes) = body.get(at..).and_then(bytes_of_first) else { return };
            at += bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_remembers_what_each_key_was() {
        let all = [Some(true), None, Some(false), Some(true)];
        let done = all.into_iter().fold(Done::NONE, Done::and);
        assert_eq!((done.count(), done.existed().collect::<Vec<_>>()), (4, all.to_vec()));
        assert_eq!(Done::one(Some(true)), Done::NONE.and(Some(true)));
        let many = (0..16).fold(Done::NONE, |done, at| done.and(Some(at % 3 == 0)));
        assert!(many.existed().enumerate().all(|(at, existed)| existed == Some(at % 3 == 0)));
    }
}
