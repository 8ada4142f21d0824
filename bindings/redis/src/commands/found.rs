//! What a range is to return, and what of it was found.

use std::ops::{Bound, ControlFlow};

use bristlecone::Result;

use super::glob::Pattern;
use crate::map::Map;
use crate::server::Reply;
use crate::store::{Bounds, ID_BYTES, Item, NO_TIME, Store, borrowed};

/// Bytes of items that a command reads before it hands the rest to a thread.
const DIRECT_BYTES: usize = 256 << 10;
/// Items that a command looks at before it hands the rest to a thread.
const DIRECT_ITEMS: usize = 1000;
/// Items for which there is room from the beginning, and bytes of each: a limit may be far more than there is.
const USUAL_ITEMS: usize = 128;
const USUAL_BYTES: usize = 32;

/// A range that a client asked for, or what is left of it.
#[derive(Clone)]
pub struct Wanted {
    /// Its bounds.
    pub bounds: Bounds,
    /// The last fields first.
    pub backward: bool,
    /// How many are left out first.
    pub skip: usize,
    /// How many at most.
    pub limit: usize,
    /// Values as well.
    pub values: bool,
    /// What fields match.
    pub pattern: Option<Pattern>,
    /// Fields with earlier times have expired; [`NO_TIME`]: none has.
    pub now: u64,
}

/// All that was wanted.
#[derive(Default)]
pub struct All {
    /// How many items there are.
    pub count: usize,
    /// The key of the first one that was found.
    pub first: Option<Vec<u8>>,
    /// The key of the last one.
    pub last: Option<Vec<u8>>,
    /// The items, if they were asked for.
    pub items: Vec<Item>,
}

/// Items, one packed after another.
pub struct Found {
    bytes: Vec<u8>,
    /// Bytes of each field and each value.
    lens: Vec<(u32, u32)>,
    looked_at: usize,
}

impl Wanted {
    /// Reads the first items. Returns them, and whether they are all that is wanted; if not, `self` is the rest. `verifies`: values
    /// that are not wanted are compared with their checksums, too.
    pub fn read(&mut self, store: &Store, map: Map<'_>, verifies: bool) -> Result<(Found, bool)> {
        let mut found = Found::with_room_for(self.limit.min(USUAL_ITEMS));
        let mut last = None;
        if self.backward || self.now != NO_TIME || !matches!(map, Map::Large(_)) {
            let mut items = store.range(map, &self.bounds.clone(), self.now);
            loop {
                let next = if self.backward { items.next_back() } else { items.next() };
                let Some((key, value)) = next.transpose()? else { break };
                if self.look(&mut found, &mut last, &key, &value).is_break() {
                    break;
                }
            }
        } else if self.limit > 0 {
            let bounds = std::mem::replace(&mut self.bounds, (Bound::Unbounded, Bound::Unbounded));
            let is_plain = self.pattern.is_none() && self.skip == 0;
            if self.values || verifies {
                let look = |key: &[u8], value: &[u8]| self.look(&mut found, &mut last, key, value);
                store.items().for_each_in(borrowed(&bounds), look)?;
            } else if is_plain {
                last = self.read_fields(store, &bounds, &mut found)?;
            } else {
                let look = |key: &[u8]| self.look(&mut found, &mut last, key, b"");
                store.items().for_each_key_in(borrowed(&bounds), look)?;
            }
            self.bounds = bounds;
        }
        let Some(last) = last else { return Ok((found, true)) };
        let bound = Bound::Excluded(last);
        if self.backward {
            self.bounds.1 = bound
        } else {
            self.bounds.0 = bound
        }
        Ok((found, false))
    }

    /// Reads the first fields within bounds, all of which are wanted. Returns the key of the last one if that is not the last one
    /// that is wanted.
    fn read_fields(&mut self, store: &Store, bounds: &Bounds, found: &mut Found) -> Result<Option<Vec<u8>>> {
        let most = self.limit.min(DIRECT_ITEMS);
        let (mut left, mut last) = (most, None);
        store.items().for_each_key_in(borrowed(bounds), |key| {
            found.push(&key[ID_BYTES..], b"");
            left -= 1;
            if left > 0 && found.bytes.len() < DIRECT_BYTES {
                return ControlFlow::Continue(());
            }
            last = Some(key.to_vec());
            ControlFlow::Break(())
        })?;
        self.limit -= most - left;
        found.looked_at = most - left;
        Ok(last.filter(|_| self.limit > 0))
    }

    /// Looks at an item, and breaks if it is to be the last one. `last`: it is not the last one that is wanted.
    #[inline]
    fn look(
        &mut self,
        found: &mut Found,
        last: &mut Option<Vec<u8>>,
        key: &[u8],
        value: &[u8],
    ) -> ControlFlow<()> {
        if self.limit == 0 {
            return ControlFlow::Break(());
        }
        if self.takes(key) {
            found.push(&key[ID_BYTES..], if self.values { value } else { b"" });
        }
        found.looked_at += 1;
        if self.limit == 0 {
            return ControlFlow::Break(());
        }
        if found.looked_at >= DIRECT_ITEMS || found.bytes.len() >= DIRECT_BYTES {
            *last = Some(key.to_vec());
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }

    /// Returns whether the next item is one of those that are wanted, and counts it.
    #[inline]
    pub fn takes(&mut self, key: &[u8]) -> bool {
        if self.pattern.as_ref().is_some_and(|pattern| !pattern.matches(&key[ID_BYTES..])) {
            return false;
        }
        if self.skip > 0 {
            self.skip -= 1;
            return false;
        }
        self.limit = self.limit.saturating_sub(1);
        true
    }

    /// Returns all that is wanted.
    pub fn all(&mut self, store: &Store, map: Map<'_>) -> Result<Vec<Item>> {
        let items = store.range(map, &self.bounds, self.now);
        Ok(self.in_range(items, true)?.items)
    }

    /// Looks at all that is wanted within a range. `keeps`: the items are asked for, too.
    pub fn in_range(
        &mut self,
        mut items: impl DoubleEndedIterator<Item = Result<Item>>,
        keeps: bool,
    ) -> Result<All> {
        let mut all = All::default();
        while self.limit > 0 {
            let next = if self.backward { items.next_back() } else { items.next() };
            let Some((key, value)) = next.transpose()? else { break };
            if self.takes(&key) {
                all.count += 1;
                if all.first.is_none() {
                    all.first = Some(key.clone());
                }
                if keeps {
                    all.items.push((key.clone(), value));
                }
                all.last = Some(key);
            }
        }
        Ok(all)
    }

    /// Replies an item.
    pub fn reply(&self, reply: Reply, field: &[u8], value: &[u8]) {
        reply.bytes(field);
        if self.values {
            reply.bytes(value);
        }
    }

    /// Returns how many elements of an array an item is.
    pub fn elements(&self) -> usize {
        1 + usize::from(self.values)
    }
}

impl Found {
    fn with_room_for(items: usize) -> Self {
        Self { bytes: Vec::with_capacity(items * USUAL_BYTES), lens: Vec::with_capacity(items), looked_at: 0 }
    }

    #[inline(always)]
    fn push(&mut self, field: &[u8], value: &[u8]) {
        self.bytes.extend_from_slice(field);
        if !value.is_empty() {
            self.bytes.extend_from_slice(value);
        }
        self.lens.push((field.len() as u32, value.len() as u32));
    }

    /// Returns how many items there are.
    pub fn len(&self) -> usize {
        self.lens.len()
    }

    /// Returns the fields.
    pub fn fields(&self) -> Vec<&[u8]> {
        let mut at = 0;
        let field = |(field, value): &(u32, u32)| {
            let begins = at;
            at += (*field + *value) as usize;
            &self.bytes[begins..begins + *field as usize]
        };
        self.lens.iter().map(field).collect()
    }

    /// Replies all, as elements of an array. Returns how many these are.
    pub fn reply(&self, wanted: &Wanted, reply: Reply) -> usize {
        let mut rest = self.bytes.as_slice();
        for (field, value) in &self.lens {
            let (field, after) = rest.split_at(*field as usize);
            let (value, after) = after.split_at(*value as usize);
            rest = after;
            wanted.reply(reply, field, value);
        }
        self.lens.len() * wanted.elements()
    }
}
