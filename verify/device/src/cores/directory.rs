//! The directory of lines: which cores have a line in their caches, and whether one of them has modified it.

/// Maximum number of threads, and of cores: the directory has a bit for each.
pub const THREADS_MAX: usize = 128;

/// No core.
const NONE: u8 = u8::MAX;

/// State of a line.
#[derive(Clone, Copy)]
pub(super) struct Line {
    /// Cores whose caches have the line.
    sharers: u128,
    /// The core that may store to the line, if there is one.
    owner: u8,
    /// Whether the owner has stored to the line.
    pub modified: bool,
    /// Whether memory has an older value.
    pub dirty: bool,
    /// The socket of its memory.
    pub home: u8,
    /// Whether it belongs to the medium.
    pub medium: bool,
    /// The kind of the operation that stored last.
    pub kind: u8,
    /// When the last transfer between cores ends: the next one begins after it.
    pub free_at: super::Time,
    /// Number of transfers of modified contents and of invalidations.
    pub moved: u32,
}

impl Line {
    pub fn new(home: u8, medium: bool) -> Self {
        Self {
            sharers: 0,
            owner: NONE,
            modified: false,
            dirty: false,
            home,
            medium,
            kind: 0,
            free_at: 0,
            moved: 0,
        }
    }

    pub fn is_shared_by(&self, core: usize) -> bool {
        self.sharers >> core & 1 == 1
    }

    /// Returns whether any core has the line.
    pub fn is_private(&self) -> bool {
        self.sharers != 0
    }

    pub fn is_owned_by(&self, core: usize) -> bool {
        usize::from(self.owner) == core
    }

    /// Returns the owner, if it is another core.
    pub fn other_owner(&self, core: usize) -> Option<usize> {
        (self.owner != NONE && !self.is_owned_by(core)).then_some(self.owner.into())
    }

    /// Returns the cores that have the line.
    pub fn all(&self) -> impl Iterator<Item = usize> + use<> {
        let mut left = self.sharers;
        std::iter::from_fn(move || {
            let next = left.trailing_zeros() as usize;
            left &= left.wrapping_sub(1);
            (next < THREADS_MAX).then_some(next)
        })
    }

    /// Returns the other cores that have the line.
    pub fn others(&self, core: usize) -> impl Iterator<Item = usize> + use<> {
        self.all().filter(move |other| *other != core)
    }

    /// Adds a core. It owns the line if it stores, or is the only one.
    pub fn join(&mut self, core: usize, stores: bool) {
        if stores {
            self.sharers = 0;
        }
        if self.sharers & !(1 << core) == 0 {
            self.owner = core as u8;
        }
        self.sharers |= 1 << core;
        self.modified |= stores;
        self.dirty |= stores;
    }

    /// Makes the line one that no core owns.
    pub fn disown(&mut self) {
        self.owner = NONE;
        self.modified = false;
    }

    /// Removes a core, whose caches have evicted the line.
    pub fn leave(&mut self, core: usize) {
        self.sharers &= !(1 << core);
        if self.is_owned_by(core) {
            self.disown();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_one_owner_or_several_sharers() {
        let mut line = Line::new(0, false);
        line.join(3, false);
        assert!(line.is_owned_by(3) && !line.modified);
        line.disown();
        line.join(5, false);
        assert!(line.other_owner(3).is_none() && line.others(3).eq([5]));
        line.join(127, true);
        assert!(line.is_owned_by(127) && line.modified && line.dirty && !line.is_shared_by(3));
        assert_eq!((line.other_owner(3), line.others(127).count()), (Some(127), 0));
        assert!(line.all().eq([127]));
        line.leave(127);
        assert!(!line.is_private() && !line.modified && line.dirty);
    }
}
