//! Groups of words: writes share two fences. Step numbers are those of the protocol in `mod.rs`.

use bristlecone_pm::{Durable, Flushed, Medium, Persist, Result};
use smallvec::SmallVec;

use super::WoTree;
use super::leaf::View;
use super::nodes::{Locked, NodeLock};
use super::read::At;
use crate::index::parts::codec::{GROUP, KeyCodec, Storage};
use crate::index::{Tell, Write, WriteMode};

/// Completed writes with pending flushes: their results, and the locked leaves, with their next state if they have a
/// new item.
struct Unsettled<'t, V: Storage> {
    flushed: Flushed,
    leaves: SmallVec<[(Locked<'t>, Option<View>); GROUP]>,
    old: SmallVec<[Option<V::Owned>; GROUP]>,
}

impl<K: KeyCodec, M: Medium> WoTree<K, M> {
    /// Writes items in their order: each immediately in its locked leaf if the fast path applies. Otherwise it is written
    /// alone, after all earlier ones are durable. No thread waits for another one while it holds leaves.
    pub(super) fn put_many<V: Storage>(
        &self,
        items: &[(K::Ref<'_>, V::Ref<'_>)],
        tell: &mut Tell<'_, V>,
    ) -> Result<()> {
        let is_grouped = K::INLINE && V::INLINE && self.shape.commits_alone();
        let places = if is_grouped {
            let keys: SmallVec<[_; GROUP]> = items.iter().map(|(key, _)| K::shorten(*key)).collect();
            self.glide_many(&keys, &K::pin())
        } else {
            [None; GROUP]
        };
        let mut unsettled =
            Unsettled { flushed: Flushed::none(), leaves: SmallVec::new(), old: SmallVec::new() };
        for ((key, value), place) in items.iter().zip(places) {
            match place.and_then(|at| self.put_fast::<V>(at, *key, *value, &mut unsettled)) {
                Some(old) => unsettled.old.push(old),
                None => {
                    self.settle(&mut unsettled, tell)?;
                    tell(Write::<K, V>::write(self, *key, *value, WriteMode::Upsert)?);
                }
            }
        }
        self.settle(&mut unsettled, tell)
    }

    /// Many 1 without the fence: writes an item of words if its leaf is unchanged and has space; returns the previous
    /// value. Returns `None` if this does not apply; nothing has been modified.
    #[inline(always)]
    fn put_fast<'t, V: Storage>(
        &'t self,
        At { leaf, lock, version, detour }: At<'t>,
        key: K::Ref<'_>,
        value: V::Ref<'_>,
        unsettled: &mut Unsettled<'t, V>,
    ) -> Option<Option<V::Owned>> {
        let (medium, guard) = (self.medium(), K::pin());
        let leaf = if detour { None } else { Locked::at(NodeLock { node: leaf, lock }, version) }?;
        let mut view = self.own_view(leaf.node, &guard).ok()?;
        let (next, old, flushed);
        match self.own_place(leaf.node, &view, key, &guard).ok()? {
            Ok(found) => {
                let (word, _) = self.values.of::<V>().write(value, "wotree update.1").ok()?;
                let cell = &self.nodes.item(leaf.node, found.slot).word;
                old = Some(V::owned(self.values.of::<V>().read(found.value, &V::pin())));
                cell.store(medium, word);
                flushed = medium.flush(cell, "wotree update.2");
                next = None;
            }
            Err(place) => {
                let slot = view.first_free(self.shape.slots)?;
                let (key, _) = self.keys.write(key, "wotree insert.1 key").ok()?;
                let (word, _) = self.values.of::<V>().write(value, "wotree insert.1 value").ok()?;
                let item = self.nodes.item(leaf.node, slot);
                item.key.store(medium, key);
                item.word.store(medium, word);
                flushed = medium.flush(item, "wotree insert.2");
                view.order.insert(place, slot);
                view.bitmap |= 1 << slot;
                (next, old) = (Some(view), None);
            }
        }
        unsettled.flushed = std::mem::replace(&mut unsettled.flushed, Flushed::none()).and(flushed);
        unsettled.leaves.push((leaf, next));
        Some(old)
    }

    /// Many 1 and 2: makes pending writes durable, unlocks their leaves, and acknowledges them.
    fn settle<V: Storage>(&self, unsettled: &mut Unsettled<'_, V>, tell: &mut Tell<'_, V>) -> Result<()> {
        if unsettled.leaves.is_empty() {
            return Ok(());
        }
        let medium = self.medium();
        let items = std::mem::replace(&mut unsettled.flushed, Flushed::none());
        let durable = medium.fence(items, "wotree many.1");
        let changed = || unsettled.leaves.iter().filter_map(|(leaf, next)| Some((leaf, next.as_ref()?)));
        let added = changed().count();
        if added > 0 {
            let commits = changed().map(|(leaf, next)| self.commit_line(leaf.node, next, &durable));
            let flushed = commits.fold(Flushed::none(), Flushed::and);
            let Durable { .. } = medium.fence(flushed, "wotree many.2");
            self.added.add(added as i64);
        }
        unsettled.leaves.clear();
        self.nodes.drain_retired();
        self.pool.health()?;
        unsettled.old.drain(..).for_each(&mut *tell);
        Ok(())
    }
}
