//! The descent from the root to a leaf, and the lookup of a key there.

use bristlecone_pm::sync::wait::again;
use bristlecone_pm::{Error, Issue, LINE_BYTES, Medium, Result};
use smallvec::SmallVec;

use super::inner::{Aim, Step};
use super::layout::State;
use super::{Pins, WoTree};
use crate::index::Read;
use crate::index::parts::codec::{KeyCodec, Record, Storage};
use crate::index::parts::optimistic_lock::{OptimisticLock, Version};

/// Maximum number of nodes that a descent usually passes, unless it must move right very often.
pub(super) const STEPS_FEW: u32 = 256;
/// Number of nodes after which a descent reports damage: a step to the right is a split that no parent knows of yet,
/// and there are hardly more of those than threads.
const STEPS_MAX: u64 = 1 << 16;

/// The path of a descent.
#[derive(Default)]
pub(super) struct Path {
    /// The inner nodes that it descended from, the root's level first.
    pub inner: SmallVec<[u64; 12]>,
    /// The word of the least key of the reached range, unless it is the first one.
    pub low: Option<u64>,
    /// The first step to the right that a parent's entry should have avoided.
    pub missing: Option<Missing>,
}

/// The right neighbour of a node has no entry above, or the root has a right neighbour.
#[derive(Clone, Copy)]
pub(super) struct Missing {
    pub level: u8,
    pub left: u64,
}

/// Receives the steps of a descent.
pub(super) trait Trail {
    /// Starts at the root.
    fn begin(&mut self);
    /// Descends from a node to a range that begins at a word, if the node knows it.
    fn down(&mut self, node: u64, low: Option<u64>);
    /// Moves right from a node of a level to a range that begins at a word.
    fn right(&mut self, left: u64, level: u8, low: u64);
}

/// Records nothing.
pub(super) struct NoTrail;

impl Trail for NoTrail {
    #[inline(always)]
    fn begin(&mut self) {}
    #[inline(always)]
    fn down(&mut self, _: u64, _: Option<u64>) {}
    #[inline(always)]
    fn right(&mut self, _: u64, _: u8, _: u64) {}
}

impl Trail for Path {
    #[inline(always)]
    fn begin(&mut self) {
        self.inner.clear();
        (self.low, self.missing) = (None, None);
    }

    #[inline(always)]
    fn down(&mut self, node: u64, low: Option<u64>) {
        self.inner.push(node);
        self.low = low.or(self.low);
    }

    #[inline(always)]
    fn right(&mut self, left: u64, level: u8, low: u64) {
        self.low = Some(low);
        self.missing = self.missing.or(Some(Missing { level, left }));
    }
}

/// A path, and the words of all separators that led there: a damaged one may lead too far right, past the key.
#[derive(Default)]
struct CheckedPath {
    path: Path,
    separators: SmallVec<[u64; 12]>,
}

impl Trail for CheckedPath {
    fn begin(&mut self) {
        self.path.begin();
        self.separators.clear();
    }

    fn down(&mut self, node: u64, low: Option<u64>) {
        self.path.down(node, low);
        self.separators.extend(low);
    }

    fn right(&mut self, left: u64, level: u8, low: u64) {
        self.path.right(left, level, low);
        self.separators.push(low);
    }
}

impl Path {
    /// Returns the visited node of a level (1: the leaves' parents).
    pub fn at_level(&self, level: u8) -> Option<u64> {
        self.inner.len().checked_sub(usize::from(level)).map(|at| self.inner[at])
    }
}

/// The leaf that a descent found.
#[derive(Clone, Copy)]
pub(super) struct At<'t> {
    pub leaf: u64,
    pub lock: &'t OptimisticLock,
    pub version: Version,
    /// Whether it was reached through a left neighbour: an entry is missing, or not added yet.
    pub detour: bool,
}

impl<K: KeyCodec, V: Storage, M: Medium> Read<K, V> for WoTree<K, M> {
    /// Records damage, too; `check` and every write report it.
    fn get(&self, key: K::Ref<'_>, show: &mut dyn FnMut(V::Ref<'_>)) -> Result<bool> {
        let pins = self.pin::<V>();
        for round in 0.. {
            let at = self.find(key, &pins.keys).map_err(|error| self.noted(error))?;
            if let Some(found) = self.get_at::<V>(&at, key, &pins, show)? {
                return Ok(found);
            }
            crate::index::parts::optimistic_lock::pause(round);
        }
        unreachable!("rounds do not end")
    }

    /// The descents overlap.
    fn get_many(&self, keys: &[K::Ref<'_>], show: &mut dyn FnMut(usize, V::Ref<'_>)) -> Result<()> {
        let pins = self.pin::<V>();
        for (number, (key, place)) in keys.iter().zip(self.glide_many(keys, &pins.keys)).enumerate() {
            let mut show = |value: V::Ref<'_>| show(number, value);
            let found = place.map(|at| self.get_at::<V>(&at, *key, &pins, &mut show)).transpose()?;
            if found.flatten().is_none() {
                Read::<K, V>::get(self, *key, &mut show)?;
            }
        }
        Ok(())
    }
}

impl<K: KeyCodec, M: Medium> WoTree<K, M> {
    /// Descends to the leaf of a key: on the unpinned fast path, if no thread intervenes.
    #[inline(always)]
    pub(super) fn find(&self, key: K::Ref<'_>, guard: &K::Guard) -> Result<At<'_>> {
        match self.glide(Aim::At(key), guard) {
            Some(at) => Ok(at),
            None => self.descend(Aim::At(key), guard, &mut NoTrail),
        }
    }

    /// Looks a key up in a leaf; returns whether it is there, or `None` if the leaf has changed since it was found.
    #[inline(always)]
    fn get_at<V: Storage>(
        &self,
        at: &At<'_>,
        key: K::Ref<'_>,
        pins: &Pins<K, V>,
        show: &mut dyn FnMut(V::Ref<'_>),
    ) -> Result<Option<bool>> {
        let still = || at.lock.validate(at.version);
        match self.look(at.leaf, key, &pins.keys, still) {
            Ok(Some((key, value))) if still() => {
                // The words were read while the leaf was valid; while pinned, their records remain.
                let verified = self.keys.verify_held(key, &pins.keys);
                let verified = verified.and_then(|()| self.verify_value::<V>(key, value, &pins.values));
                verified.map_err(|error| self.noted(error))?;
                show(self.values.of::<V>().read(value, &pins.values));
                Ok(Some(true))
            }
            Ok(None) if still() => {
                let is_word = K::INLINE && V::INLINE;
                if is_word { Ok(Some(false)) } else { self.look_closely::<V>(key, show).map(Some) }
            }
            // The state is not that of a leaf although no thread changes it: it never was a leaf.
            Err(_) if still() => Err(self.noted(self.damaged("a reference to no leaf", at.leaf))),
            _ => Ok(None),
        }
    }

    /// Descends to the leaf of a target. Nodes remain valid while a thread is pinned that may have read a reference to
    /// them.
    pub(super) fn descend(&self, aim: Aim<'_, K>, guard: &K::Guard, path: &mut impl Trail) -> Result<At<'_>> {
        let _pinned = bristlecone_pm::sync::epoch::pin();
        let mut round = 0;
        'root: loop {
            again(&mut round);
            // Per attempt: other threads may send it back to the root whenever they change that.
            let mut steps = 0;
            path.begin();
            let mut detour = false;
            let mut node = self.root();
            let Some(mut level) = self.level_of(node)? else { continue };
            while level > 0 {
                steps += 1;
                let lock = self.nodes.lock(node)?;
                match self.step(node, level, lock, aim, guard) {
                    Step::Down(child, low) => {
                        path.down(node, low);
                        node = child;
                        level -= 1;
                    }
                    Step::Right(next, high) => {
                        path.right(node, level, high);
                        (node, detour) = (next, true);
                    }
                    Step::Lost => continue 'root,
                }
                self.still_going(steps, node)?;
            }
            loop {
                steps += 1;
                let lock = self.nodes.lock(node)?;
                self.fetch(node);
                let Some(version) = lock.read() else { continue 'root };
                let link = self.nodes.leaf_link(node);
                let next = link.next.load(self.medium());
                if next == 0 {
                    return Ok(At { leaf: node, lock, version, detour });
                }
                let high = link.high.load(self.medium());
                if !K::INLINE && !lock.validate(version) {
                    continue 'root;
                }
                if !aim.is_at_or_after(self.separator(high, guard)) {
                    return Ok(At { leaf: node, lock, version, detour });
                }
                if !lock.validate(version) {
                    continue 'root;
                }
                path.right(node, 0, high);
                (node, detour) = (next, true);
                self.still_going(steps, node)?;
            }
        }
    }

    /// Descends as [`descend`](Self::descend) does. Unless `lenient`, verifies the checksums of the separators that led to
    /// the leaf.
    pub(super) fn reach(
        &self,
        aim: Aim<'_, K>,
        guard: &K::Guard,
        path: &mut Path,
        lenient: bool,
    ) -> Result<At<'_>> {
        if K::INLINE || lenient {
            return self.descend(aim, guard, path);
        }
        let mut trail = CheckedPath::default();
        let at = self.descend(aim, guard, &mut trail)?;
        trail.separators.iter().try_for_each(|word| self.separators.verify_held(*word, guard))?;
        *path = trail.path;
        Ok(at)
    }

    /// Prefetches all lines of a node: a search would find out which ones it needs only one after the other.
    #[inline(always)]
    pub(super) fn fetch(&self, node: u64) {
        for line in (0..self.shape.node_bytes).step_by(LINE_BYTES) {
            self.nodes.fetch(node + line);
        }
    }

    /// Descends to the inner node of a level that covers a target, without locking it. Returns `None` if the root is
    /// below that level.
    pub(super) fn descend_inner(&self, aim: Aim<'_, K>, level: u8, guard: &K::Guard) -> Result<Option<u64>> {
        'root: loop {
            let mut steps = 0;
            let mut node = self.root();
            let Some(mut at) = self.level_of(node)? else { continue };
            if at < level {
                return Ok(None);
            }
            loop {
                steps += 1;
                let lock = self.nodes.lock(node)?;
                match self.step(node, at, lock, aim, guard) {
                    Step::Down(..) if at == level => return Ok(Some(node)),
                    Step::Down(child, _) => (node, at) = (child, at - 1),
                    Step::Right(next, _) => node = next,
                    Step::Lost => continue 'root,
                }
                self.still_going(steps, node)?;
            }
        }
    }

    #[inline(always)]
    fn still_going(&self, steps: u32, node: u64) -> Result<()> {
        if steps < STEPS_FEW { Ok(()) } else { self.still_going_far(steps, node) }
    }

    /// Fails once a descent has passed the maximum possible number of nodes.
    #[cold]
    fn still_going_far(&self, steps: u32, node: u64) -> Result<()> {
        let most = STEPS_MAX.min(self.pool.max_bytes() / self.shape.node_bytes);
        if u64::from(steps) < most.max(STEPS_FEW.into()) {
            return Ok(());
        }
        Err(self.damaged("nodes that lead in a circle", node))
    }

    /// Returns the level of the root, or `None` if it is not the root any more.
    #[inline(always)]
    fn level_of(&self, root: u64) -> Result<Option<u8>> {
        match self.nodes.state(root) {
            Some(State::Leaf { .. }) => Ok(Some(0)),
            Some(State::Inner { level }) => Ok(Some(level)),
            _ if self.root() != root => Ok(None),
            _ => Err(self.damaged("a root that is no node", root)),
        }
    }

    /// Returns whether the value of an item is readable. A record whose header is damaged would appear as an empty
    /// value.
    #[inline(always)]
    pub(super) fn has_value<V: Storage>(&self, key: u64, value: u64) -> bool {
        V::INLINE
            || !self.values.records.is_empty_at(value)
            || self.is_really_empty(self.verify_value::<V>(key, value, &V::pin()))
    }

    /// Verifies the checksum of a value's record, and compares its owner with the item's key: a record of zeros has the
    /// checksum of an empty one.
    pub(super) fn verify_value<V: Storage>(&self, key: u64, value: u64, guard: &V::Guard) -> Result<()> {
        self.values.of::<V>().verify_held(value, guard)?;
        if V::INLINE || self.values.records.owner_at(value) == Some(key) {
            return Ok(());
        }
        Err(Error::corrupted("a value of another key", format!("ValueRecord {value:#x}")))
    }

    /// Verifies a value as [`verify_value`](Self::verify_value) does.
    pub(super) fn verify_stored(&self, key: u64, value: u64) -> Result<()> {
        if self.values.are_words() { Ok(()) } else { self.verify_value::<Record>(key, value, &Record::pin()) }
    }

    /// Returns whether both words of an item are readable.
    #[inline(always)]
    pub(super) fn is_there<V: Storage>(&self, (key, value): &(u64, u64)) -> bool {
        let has_key =
            K::INLINE || !self.keys.records.is_empty_at(*key) || self.is_really_empty(self.keys.verify(*key));
        has_key && self.has_value::<V>(*key, *value)
    }

    #[cold]
    fn is_really_empty(&self, verified: Result<()>) -> bool {
        verified.inspect_err(|error| self.note_error(error)).is_ok()
    }

    /// Looks a key up as [`get`](Read::get) does, where a damaged key or separator may have led a search astray. An
    /// absent key must be between two sound ones, in a leaf between sound separators: other keys cannot mislead a
    /// search that ends there.
    fn look_closely<V: Storage>(&self, key: K::Ref<'_>, show: &mut dyn FnMut(V::Ref<'_>)) -> Result<bool> {
        let pins = self.pin::<V>();
        let mut path = Path::default();
        for round in 0.. {
            if round > 0 {
                crate::index::parts::optimistic_lock::pause(round);
            }
            let at =
                self.reach(Aim::At(key), &pins.keys, &mut path, false).map_err(|error| self.noted(error))?;
            let still = || at.lock.validate(at.version);
            let seen = self.view(at.leaf, &pins.keys, still);
            let seen =
                seen.and_then(|view| Ok((view, self.locate(at.leaf, &view.order, key, &pins.keys, still)?)));
            let Ok((view, found)) = seen else {
                if still() {
                    return Err(self.noted(self.damaged("a reference to no leaf", at.leaf)));
                }
                continue;
            };
            let key_at = |place: usize| {
                let slot = view.order.slots().get(place)?;
                Some(self.nodes.item(at.leaf, (*slot).into()).key.load(self.medium()))
            };
            let near = match found {
                Ok(found) => [Some(found.key), None],
                Err(place) => [place.checked_sub(1).and_then(key_at), key_at(place)],
            };
            let link = self.nodes.leaf_link(at.leaf);
            let (next, high) = (link.next.load(self.medium()), link.high.load(self.medium()));
            if !still() {
                continue;
            }
            let verify = || {
                near.into_iter().flatten().try_for_each(|word| self.keys.verify_held(word, &pins.keys))?;
                if let Ok(found) = found {
                    return self.verify_value::<V>(found.key, found.value, &pins.values);
                }
                if !view.is_sound() {
                    return Err(self.damaged(super::leaf::WRONG_ORDER, at.leaf));
                }
                match next {
                    0 if near[1].is_none() && self.is_cut_off(&at, &pins.keys) => {
                        Err(self.damaged("a last leaf that is not the last", at.leaf))
                    }
                    0 => Ok(()),
                    _ => self.separators.verify_held(high, &pins.keys),
                }
            };
            verify().map_err(|error| self.noted(error))?;
            return Ok(found
                .inspect(|found| show(self.values.of::<V>().read(found.value, &pins.values)))
                .is_ok());
        }
        unreachable!("rounds do not end")
    }

    /// Records an error of a read, and returns it.
    #[cold]
    fn noted(&self, error: Error) -> Error {
        self.note_error(&error);
        error
    }

    /// Records damage found by a read.
    #[cold]
    pub(super) fn note_error(&self, error: &Error) {
        self.damage.note(match error {
            Error::Corrupted { what, location } => Issue::new(location, what),
            error => Issue::new("tree", error.to_string()),
        });
    }

    #[cold]
    pub(super) fn note_damage(&self, what: &str, node: u64) {
        self.note_error(&self.damaged(what, node));
    }

    /// Returns the words of the item of a key, for liveness callbacks.
    pub(super) fn words_of(&self, key: K::Ref<'_>) -> Result<Option<(u64, u64)>> {
        let guard = K::pin();
        for round in 0.. {
            let At { leaf, lock, version, .. } = self.descend(Aim::At(key), &guard, &mut NoTrail)?;
            let still = || lock.validate(version);
            let found = self
                .view(leaf, &guard, still)
                .and_then(|view| self.locate(leaf, &view.order, key, &guard, still));
            match found {
                Ok(found) if still() => return Ok(found.ok().map(|found| (found.key, found.value))),
                Err(_) if still() => return Err(self.damaged("a reference to no leaf", leaf)),
                _ => crate::index::parts::optimistic_lock::pause(round),
            }
        }
        unreachable!("rounds do not end")
    }
}
