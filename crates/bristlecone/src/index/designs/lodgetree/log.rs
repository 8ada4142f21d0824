//! Log limits, and compaction passes: when there are too many logs, writers visit the nodes, a few at a time, and
//! append the buffered entries of the old logs again. Step numbers are those of the protocol in `mod.rs`.

use bristlecone_pm::sync::wait::reached;
use bristlecone_pm::sync::{Ordering::Acquire, Ordering::Release};
use bristlecone_pm::{Durable, Flushed, Medium, Persist};
use smallvec::SmallVec;

use super::LodgeTree;
use super::buffer::Buffered;
use super::versions::{ALL, OLDEST, Pass, Spot};
use crate::index::parts::buffered::ASIDE_MIN;
use crate::index::parts::codec::KeyCodec;

impl<K: KeyCodec, M: Medium> LodgeTree<K, M> {
    /// Returns the number of logs in use from which on a compaction pass begins: four times the capacity of all
    /// buffers, plus one for each thread. With twice the capacity, four threads spent a quarter of their time on
    /// passes.
    pub(super) fn logs_wanted(&self) -> usize {
        let items = self.nodes.live() * self.node_slots / 2;
        4 * (items / self.versions.log.chunk_entries() + 1) + self.versions.log.appenders()
    }

    /// Returns the maximum number of logs, except for one that each thread takes at the same time: leaves space for
    /// logs taken while a compaction pass is running.
    pub(super) fn logs_max(&self) -> usize {
        let wanted = self.logs_wanted();
        wanted + (wanted / 4).max(self.versions.log.appenders())
    }

    /// Reserves space for a log entry, if the logs may grow. A `steady` change is one of a buffered key.
    pub(super) fn reserve_entry(&self, steady: bool) -> Option<Spot<'_, M>> {
        let versions = &self.versions;
        let spot = versions.log.reserve(|_| {
            versions.reuse();
            let (used, wanted) = (versions.log.chunks_in_use(), self.logs_wanted());
            if used >= wanted {
                versions.want(OLDEST);
            }
            // While pinning pin too many logs, writes bypass the log and go to the leaves.
            used < self.logs_max() && self.log_may_grow(steady)
        });
        spot.map(|spot| Spot::of(versions, spot))
    }

    /// Does a writer's share of log maintenance after its own work.
    #[cold]
    pub(super) fn help_log(&self) {
        // Enough that a compaction pass ends before half of a log is full.
        let pace = 2 * u64::from(self.nodes.end()) / self.versions.log.chunk_entries() as u64 + 2;
        self.compact(pace as u32);
    }

    /// Compacts up to `nodes` nodes; begins and ends passes as necessary. Returns immediately if another thread is
    /// compacting.
    fn compact(&self, nodes: u32) {
        let versions = &self.versions;
        let Ok(mut pass) = versions.pass.try_lock() else { return };
        if !versions.running.load(Acquire) {
            match versions.take_wanted() {
                None => return,
                Some(wanted) => self.begin_pass(&mut pass, wanted),
            }
        }
        self.compact_nodes(&mut pass, nodes);
    }

    /// Ends the running pass, or runs one for the entries of all logs.
    pub(super) fn compact_all(&self, pass: &mut Pass) {
        if !self.versions.running.load(Acquire) {
            self.begin_pass(pass, ALL);
        }
        self.compact_nodes(pass, u32::MAX);
    }

    /// Compact 1: later entries go to other logs.
    fn begin_pass(&self, pass: &mut Pass, wanted: u8) {
        let versions = &self.versions;
        reached("lodgetree compact.1");
        pass.old = if wanted == OLDEST {
            let kept = self.logs_wanted() * 3 / 4;
            versions.log.take_oldest(versions.log.chunks_in_use().saturating_sub(kept))
        } else {
            let (_, old, aside) = versions.log.begin_pass();
            pass.aside = aside;
            old
        };
        versions.mark_old(&pass.old);
        (pass.next, pass.end) = (0, self.nodes.end());
        versions.running.store(true, Release);
    }

    fn compact_nodes(&self, pass: &mut Pass, nodes: u32) {
        let stride = nodes.min(pass.end - pass.next);
        for id in pass.next..pass.next + stride {
            if id + stride < pass.end {
                self.nodes.get(id + stride).prefetch();
            }
            self.log_again(id);
        }
        pass.next += stride;
        if pass.next == pass.end {
            self.finish_pass(pass);
        }
    }

    /// Compact 2: appends the buffered entries of a node again that are in an old log.
    fn log_again(&self, id: u32) {
        // Writers that are waited for may have appended to old logs; later ones cannot.
        let Some(node) = self.lock_if_any(id, |item| self.versions.is_old(item.log)) else { return };
        let (versions, mut flushed) = (&self.versions, Flushed::none());
        let mut copies = SmallVec::<[(usize, u32); 8]>::new();
        let mut has_room = true;
        for (item, buffered) in node.all_buffered().enumerate() {
            if versions.is_old(buffered.log) {
                // The number of buffered items is bounded, and the old logs are about to be freed.
                let log = &versions.log;
                let spot = log.reserve_copy(|_| true).or_else(|| log.draw_on_reserve());
                has_room = spot.is_some();
                let Some(spot) = spot else { break };
                let spot = Spot::of(versions, spot);
                let (log, under_way) = spot.copy(&buffered.item().entry(node.sequence()));
                flushed = flushed.and(under_way);
                copies.push((item, log));
            }
        }
        let Durable { .. } = self.medium().fence(flushed, "lodgetree compact.2");
        for (item, log) in copies {
            let buffered = node.buffered(item);
            node.set_buffered(item, Buffered { log, ..buffered });
            versions.release(&[buffered.log]);
        }
        if !has_room {
            self.flush_what_fits(&node);
        }
    }

    /// Compact 3: empties old logs without needed entries. Where there was space neither for copies nor in leaves,
    /// the old logs stay.
    fn finish_pass(&self, pass: &mut Pass) {
        let versions = &self.versions;
        versions.unmark_old(&pass.old);
        versions.count_all_releases();
        let old = std::mem::take(&mut pass.old);
        let (empty, needed): (Vec<_>, Vec<_>) =
            old.into_iter().partition(|old| versions.is_unneeded(old.id()));
        let stuck = !needed.is_empty();
        versions.log.seal(needed);
        let gave = !empty.is_empty() || !stuck && !pass.aside.is_empty();
        if !empty.is_empty() {
            versions.log.recycle(empty);
        }
        if stuck {
            // One of them may have lost its last entry meanwhile.
            versions.reuse();
            versions.log.put_back_aside(std::mem::take(&mut pass.aside));
        } else {
            versions.log.retire_aside::<K>(&self.keys, std::mem::take(&mut pass.aside));
        }
        versions.running.store(false, Release);
        if gave {
            versions.log.give();
        }
    }

    /// Retires a removed key that has left its leaf. Its record is kept until no valid log entry refers to it.
    pub(super) fn retire_key(&self, key: u64) {
        if K::INLINE {
            return;
        }
        if self.versions.log.put_aside(key).is_some_and(|aside| aside >= ASIDE_MIN.max(self.nodes.live())) {
            self.versions.want(ALL);
        }
    }
}
