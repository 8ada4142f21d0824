//! Iterating over a tree, leaf by leaf, from both ends.

use std::ops::Bound;

use bristlecone_pm::{Medium, Native};

use crate::shared::form::{KeyForm, ValueForm};
use crate::trees::{AnyTree, Batch};
use crate::{Key, Value};

/// An iterator over the items of a tree. See [`Tree::range`](crate::Tree::range).
pub struct Range<'t, K: Key, V: Value, M: Medium = Native> {
    tree: &'t AnyTree<K::Form, V::Form, M>,
    /// What the front still has in hand, and where it goes on after that.
    front: Batch<K::Form, V::Form>,
    from: Limit<K>,
    back: Batch<K::Form, V::Form>,
    to: Limit<K>,
    /// Whether anything was asked of the front, and of the back: if of both, they may meet within
    /// what is in hand.
    begun: (bool, bool),
    done: bool,
}

type Limit<K> = Bound<<<K as Key>::Form as KeyForm>::Owned>;

fn borrow<K: KeyForm>(bound: &Bound<K::Owned>) -> Bound<K::Ref<'_>> {
    bound.as_ref().map(|key| K::borrow(key))
}

/// Whether nothing can lie between two bounds.
fn is_empty<T: Ord>(from: &Bound<T>, to: &Bound<T>) -> bool {
    match (from, to) {
        (Bound::Included(from), Bound::Included(to)) => from > to,
        (Bound::Included(from) | Bound::Excluded(from), Bound::Included(to) | Bound::Excluded(to)) => {
            from >= to
        }
        _ => false,
    }
}

impl<'t, K: Key, V: Value, M: Medium> Range<'t, K, V, M> {
    pub(crate) fn new(tree: &'t AnyTree<K::Form, V::Form, M>, from: Limit<K>, to: Limit<K>) -> Self {
        let done = is_empty(&from, &to);
        Self { tree, front: Batch::default(), from, back: Batch::default(), to, begun: (false, false), done }
    }

    /// Whether the back has not given out `key` yet, nor anything below it.
    fn before_back(&self, key: &<K::Form as KeyForm>::Owned) -> bool {
        match (self.back.entries.last(), &self.to) {
            (Some((last, _)), _) | (None, Bound::Included(last)) => key <= last,
            (None, Bound::Excluded(end)) => key < end,
            (None, Bound::Unbounded) => true,
        }
    }

    /// Whether the front has not given out `key` yet, nor anything above it.
    fn after_front(&self, key: &<K::Form as KeyForm>::Owned) -> bool {
        match (self.front.entries.last(), &self.from) {
            (Some((first, _)), _) | (None, Bound::Included(first)) => key >= first,
            (None, Bound::Excluded(end)) => key > end,
            (None, Bound::Unbounded) => true,
        }
    }

    fn give(
        (key, value): (<K::Form as KeyForm>::Owned, <V::Form as ValueForm>::Owned),
    ) -> (K::Owned, V::Owned) {
        (K::decode(&key), V::decode(V::Form::borrow(&value)))
    }
}

impl<K: Key, V: Value, M: Medium> Range<'_, K, V, M> {
    /// The next item, whatever it takes.
    #[inline(never)]
    fn look_forward(&mut self) -> Option<(K::Owned, V::Owned)> {
        while !self.done {
            if let Some(entry) = self.front.entries.pop() {
                if !self.begun.1 || self.before_back(&entry.0) {
                    if self.front.entries.is_empty() {
                        self.from = Bound::Excluded(entry.0.clone());
                    }
                    return Some(Self::give(entry));
                }
                self.done = true;
            } else {
                self.begun.0 = true;
                let bounds = (borrow::<K::Form>(&self.from), borrow::<K::Form>(&self.to));
                self.done = !self.tree.scan_forward(bounds, &mut self.front);
            }
        }
        None
    }

    /// The last item left, whatever it takes.
    #[inline(never)]
    fn look_backward(&mut self) -> Option<(K::Owned, V::Owned)> {
        while !self.done {
            if let Some(entry) = self.back.entries.pop() {
                if !self.begun.0 || self.after_front(&entry.0) {
                    if self.back.entries.is_empty() {
                        self.to = Bound::Excluded(entry.0.clone());
                    }
                    return Some(Self::give(entry));
                }
                self.done = true;
            } else {
                self.begun.1 = true;
                let bounds = (borrow::<K::Form>(&self.from), borrow::<K::Form>(&self.to));
                self.done = !self.tree.scan_backward(bounds, &mut self.back);
            }
        }
        None
    }
}

impl<K: Key, V: Value, M: Medium> Iterator for Range<'_, K, V, M> {
    type Item = (K::Owned, V::Owned);

    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        // What is in hand, while more than that is and nobody comes towards it.
        if self.front.entries.len() > 1
            && !self.begun.1
            && let Some(entry) = self.front.entries.pop()
        {
            return Some(Self::give(entry));
        }
        self.look_forward()
    }
}

impl<K: Key, V: Value, M: Medium> DoubleEndedIterator for Range<'_, K, V, M> {
    #[inline(always)]
    fn next_back(&mut self) -> Option<Self::Item> {
        if self.back.entries.len() > 1
            && !self.begun.0
            && let Some(entry) = self.back.entries.pop()
        {
            return Some(Self::give(entry));
        }
        self.look_backward()
    }
}

impl<K: Key, V: Value, M: Medium> std::iter::FusedIterator for Range<'_, K, V, M> {}

impl<K: Key, V: Value, M: Medium> std::fmt::Debug for Range<'_, K, V, M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Range").finish_non_exhaustive()
    }
}
