//! Maps whose names get values of other types: `SET`, `RENAME`, `RESTORE … REPLACE` and the like over a map.
//!
//! The map is in the pool, and its successor in the append-only file, which the server writes before it replies. Were the map
//! removed first, a crash before that write would lose both. So while there is an append-only file:
//!
//! 1. Before the server writes the file, the map is noted as covered. *A crash from here on leaves the file to decide: if it has
//!    another value under the name, the map is removed at the start, otherwise it is served.*
//! 2. The server writes the file, and replies.
//! 3. In a later turn of the server, once the file is written, the map is removed, with its note.
//!
//! If the name has nothing any more, or another map, when the file is written, the map is removed in one step as any other.

use bristlecone::Result;

use super::directory::{Entry, Place};
use super::{Note, Of, Store, lock};
use crate::kind;
use crate::server::{has_append_only_file, is_file_written};

/// A map that is covered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Covered {
    place: Place,
    /// The pool knows of it since an earlier turn of the server.
    is_noted: bool,
}

impl Store {
    /// Takes what is covered out of what is detached.
    pub(super) fn set_covered_aside(&self) {
        let (mut detached, mut covered) = (lock(&self.detached), lock(&self.covered));
        if detached.is_empty() && covered.is_empty() || !has_append_only_file() {
            return;
        }
        // What is not covered any more is removed as any other, but for what waits for its end.
        covered.retain(|of| {
            let stays = of.is_noted || self.is_covered(of.place);
            if !stays {
                detached.push(of.place);
            }
            stays
        });
        detached.retain(|place| {
            let is_covered = !covered.iter().any(|of| of.place.id == place.id) && self.is_covered(*place);
            if is_covered {
                covered.push(Covered { place: *place, is_noted: false });
            }
            !is_covered
        });
    }

    fn is_covered(&self, place: Place) -> bool {
        let of_db =
            lock(&self.spaces).of_db.iter().find(|(_, of_db)| **of_db == place.space).map(|(db, _)| *db);
        let Some(db) = of_db else { return false };
        self.name_of(place).is_some_and(|name| kind::is_of_another(db, &name))
    }

    /// Carries out step 3 for what was noted in an earlier turn, and step 1 for the rest. `at_end`: the file is written, and the
    /// server ends.
    pub fn note_covered(&self, at_end: bool) -> Result<()> {
        let mut covered = lock(&self.covered);
        if covered.is_empty() {
            return Ok(());
        }
        // With `appendfsync everysec` the server may put off a write.
        let is_written = covered.iter().any(|of| of.is_noted) && is_file_written();
        let is_done = |of: &Covered| of.is_noted && is_written || at_end;
        let mut done = covered.iter().filter(|of| is_done(of)).map(|of| of.place).collect();
        self.remove_covered(&mut done)?;
        covered.retain(|of| !is_done(of));
        for of in covered.iter_mut().filter(|of| !of.is_noted) {
            let key = Note::Covered(of.place.id).key();
            self.with_reserve(|| self.in_one_step(false, |step| step.insert(Of::Meta, &key, b"")))?;
            of.is_noted = true;
        }
        Ok(())
    }

    /// Returns whether a crash left a map covered, and forgets it.
    pub fn was_covered(&self, id: u64) -> Result<bool> {
        let was_covered = lock(&self.left_covered).remove(&id);
        if was_covered {
            self.meta.remove(&Note::Covered(id).key())?;
        }
        Ok(was_covered)
    }

    /// Forgets which maps a crash left covered, but for those of `entries`.
    pub fn forget_covered_without(&self, entries: &[Entry]) -> Result<()> {
        let mut left = std::mem::take(&mut *lock(&self.left_covered));
        left.retain(|id| entries.iter().all(|entry| entry.place.id != *id));
        left.into_iter().try_for_each(|id| self.meta.remove(&Note::Covered(id).key()).map(drop))
    }
}
