//! What a range is to return, and what of it was found.

use std::ops::Bound;

use bristlecone::Result;

use crate::server::Reply;
use crate::store::{Bounds, ID_BYTES, Store};

/// Bytes of items that a command reads before it hands the rest to a thread.
const DIRECT_BYTES: usize = 256 << 10;
/// Items that a command reads before it hands the rest to a thread.
const DIRECT_ITEMS: usize = 1000;
/// Items for which there is room from the beginning, and bytes of each: a limit may be far more than there is.
const USUAL_ITEMS: usize = 128;
const USUAL_BYTES: usize = 32;

/// A range that a client asked for.
pub struct Wanted {
    /// Its bounds.
    pub bounds: Bounds,
    /// The last fields first.
    pub backward: bool,
    /// How many at most.
    pub limit: usize,
    /// Values as well.
    pub values: bool,
}

/// Items, one packed after another.
pub struct Found {
    bytes: Vec<u8>,
    /// Bytes of each key and each value.
    lens: Vec<(u32, u32)>,
}

impl Wanted {
    /// Reads the first items. Returns them, and whether they are all that is wanted.
    pub fn read(&self, store: &Store) -> Result<(Found, bool)> {
        let mut found = Found::with_room_for(self.limit.min(USUAL_ITEMS));
        let mut items = store.range(&self.bounds);
        while found.lens.len() < self.limit {
            let next = if self.backward { items.next_back() } else { items.next() };
            let Some((key, value)) = next.transpose()? else { break };
            if found.lens.len() >= DIRECT_ITEMS || found.bytes.len() >= DIRECT_BYTES {
                return Ok((found, false));
            }
            found.push(&key, if self.values { &value } else { b"" });
        }
        Ok((found, true))
    }

    /// Returns the bounds of what was not found yet.
    pub fn after(&self, found: &Found) -> Bounds {
        let (from, to) = self.bounds.clone();
        match found.last() {
            None => (from, to),
            Some(last) if self.backward => (from, Bound::Excluded(last.to_vec())),
            Some(last) => (Bound::Excluded(last.to_vec()), to),
        }
    }

    /// Replies an item. Returns how many elements that are.
    pub fn reply(&self, reply: Reply, key: &[u8], value: &[u8]) -> usize {
        reply.bytes(&key[ID_BYTES..]);
        if self.values {
            reply.bytes(value);
        }
        1 + usize::from(self.values)
    }
}

impl Found {
    fn with_room_for(items: usize) -> Self {
        Self { bytes: Vec::with_capacity(items * USUAL_BYTES), lens: Vec::with_capacity(items) }
    }

    fn push(&mut self, key: &[u8], value: &[u8]) {
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
        self.lens.push((key.len() as u32, value.len() as u32));
    }

    /// Returns how many items there are.
    pub fn len(&self) -> usize {
        self.lens.len()
    }

    fn last(&self) -> Option<&[u8]> {
        let (key, value) = self.lens.last()?;
        let start = self.bytes.len() - (*key + *value) as usize;
        Some(&self.bytes[start..start + *key as usize])
    }

    /// Replies all, as elements of an array. Returns how many these are.
    pub fn reply(&self, wanted: &Wanted, reply: Reply) -> usize {
        let mut rest = self.bytes.as_slice();
        let items = self.lens.iter().map(|(key, value)| {
            let (key, after) = rest.split_at(*key as usize);
            let (value, after) = after.split_at(*value as usize);
            rest = after;
            wanted.reply(reply, key, value)
        });
        items.sum()
    }
}
