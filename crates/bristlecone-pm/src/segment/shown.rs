//! Sharing with followers: the pool and each tree, while they are open.

use super::left::Left;
use super::live::{END, Phase};
use super::{Manifest, Mode, Segment};

impl Segment {
    pub(super) fn set_phase(&self, phase: Phase) {
        if self.mode == Mode::Write {
            self.live.iter().for_each(|live| live.set_phase(phase));
        }
    }

    /// Admits followers: the pool is open.
    pub(crate) fn begin(&self) {
        self.set_phase(Phase::Live);
    }

    /// Stops admitting followers, and waits briefly for those that are reading. Returns `false` if
    /// some may still read.
    pub(crate) fn end(&self) -> bool {
        self.set_phase(Phase::Closed);
        self.live.as_ref().is_none_or(|live| live.wait_until_unread(&self.file, END))
    }

    /// Shares a tree with followers as described by the manifest of `share`; does nothing if `share`
    /// returns `None`.
    pub(crate) fn share_tree(&self, tree: u32, share: impl FnOnce(&mut Manifest) -> Option<()>) {
        let Some(live) = self.live.as_ref().filter(|_| self.mode == Mode::Write && self.is_whole()) else {
            return;
        };
        let mut manifest = Manifest::live();
        if share(&mut manifest).is_some() {
            let (extents, words) = manifest.into_parts();
            let is_shown = live.publish(tree, &Left { extents, words }.encode());
            is_shown.then(|| self.state().shown.insert(tree));
        }
    }

    /// Withdraws a tree from followers.
    pub(crate) fn withdraw_tree(&self, tree: u32) {
        // The page of a tree that was never shared may be a hole, for which there may be no memory.
        if self.mode == Mode::Write && self.opener.is_here() && self.state().shown.remove(&tree) {
            self.live.iter().for_each(|live| live.withdraw(tree));
        }
    }
}
