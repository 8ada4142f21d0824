//! Salvaging the items of a damaged tree. Nothing is trusted: leaves are read one by one, as in
//! recovery, and contradictions are skipped.
//!
//! A leaf has no checksum. Two criteria identify valid items: the checksums of their records, for
//! keys and values out of line, and the order of leaves. A key must lie between the medians of the
//! leaves to the left and to the right of its own; a few wrong keys do not move a median.

use std::cmp::Ordering;
use std::collections::HashSet;
use std::ops::Bound;
use std::sync::Arc;

use bristlecone_pm::sync::epoch::pin;
use bristlecone_pm::{ChunkRange, Medium, PoolFile, Result};

use super::census::Census;
use super::layout::{END, FREE, Header, LEAF_SLOTS_MAX, SUBNODES, Shape, slot_offset, unstage};
use crate::index::parts::codec::KeyCodec;
use crate::index::parts::items::{Items, Values};
use crate::index::parts::slot::{Slot, bits};
use crate::index::{Described, SalvageSink};

/// The remains of a tree.
pub(super) struct DamagedTree<K: KeyCodec, M: Medium> {
    pool: Arc<PoolFile<M>>,
    keys: Items<K, M>,
    values: Values<M>,
    shape: Shape,
    census: Census,
}

/// The remains of a leaf.
struct Piece<K: KeyCodec> {
    chain: Vec<u64>,
    bitmap: u64,
    staged: Option<usize>,
    /// Smallest, median and largest of the readable keys.
    keys: [K::Owned; 3],
    /// Whether the chain is complete.
    sound: bool,
}

impl<K: KeyCodec> Piece<K> {
    fn by_median(&self, other: &Self) -> Ordering {
        self.keys[1].cmp(&other.keys[1])
    }
}

/// An item as stored in a slot.
struct Item {
    /// Position of the subnode in the chain.
    at: usize,
    key: u64,
    value: u64,
    /// The slot's own key, if the item is staged and has another one.
    covered: Option<u64>,
}

impl<K: KeyCodec, M: Medium> DamagedTree<K, M> {
    pub fn new(pool: &Arc<PoolFile<M>>, entry: Described<'_>, shape: Shape) -> Result<Self> {
        let slots = pool.chunk_bytes() as usize / shape.subnode_bytes;
        let mut ranges = Vec::new();
        for chunk in pool.chunks_of(entry.id) {
            if (chunk.kind, chunk.slot_bytes as usize) == (SUBNODES, shape.subnode_bytes) {
                ranges.push(ChunkRange { offset: chunk.offset, slots });
            }
        }
        let keys = Items::keys(pool, entry.id)?;
        let values = Values::open(pool, entry.id, entry.values)?;
        let census = Census::new(ranges, pool.chunk_bytes(), shape);
        Ok(Self { pool: Arc::clone(pool), keys, values, shape, census })
    }

    fn header(&self, subnode: u64) -> &Header {
        self.pool.at(subnode)
    }

    fn next(&self, subnode: u64) -> u64 {
        self.header(subnode).next.load(self.pool.medium())
    }

    /// Returns every subnode without the free tag.
    fn occupied(&self) -> impl Iterator<Item = u64> {
        let all = (0..self.census.ranges.len()).flat_map(|chunk| self.census.offsets(chunk));
        all.filter(|&subnode| self.next(subnode) != FREE)
    }

    /// Passes every plausible item to the sink.
    pub fn save(&self, sink: &mut SalvageSink<'_, K>) -> Result<()> {
        for subnode in self.occupied() {
            let next = self.next(subnode);
            if next != END && self.census.name(next, subnode).is_err() {
                sink.find(format!("subnode {subnode:#x}"), format!("next {next:#x} cannot be"));
            }
        }
        let heads = self.occupied().filter(|&subnode| !self.census.is_named(subnode));
        let mut pieces: Vec<_> = heads.filter_map(|head| self.piece(head, sink)).collect();
        pieces.sort_by(Piece::by_median);
        self.rejoin(&mut pieces, sink);
        let order: Vec<_> =
            pieces.iter().filter(|piece| piece.sound).map(|piece| piece.keys[1].clone()).collect();
        let mut astray = Vec::new();
        // Doubtful items come later, so that they do not replace anything.
        for sound in [true, false] {
            for piece in pieces.iter().filter(|piece| piece.sound == sound) {
                self.hand_over(piece, &order, sink, &mut astray)?;
            }
        }
        // A wrong link may have hidden the head of another leaf, or a whole leaf.
        let reached: HashSet<u64> = pieces.iter().flat_map(|piece| &piece.chain).copied().collect();
        let hidden = self.occupied().filter(|subnode| !reached.contains(subnode));
        let behind = astray.iter().filter(|(at, ..)| *at > 0).map(|(_, subnode, _)| *subnode);
        // A single misplaced key is damaged; if most keys are misplaced, the link is damaged.
        let behind: Vec<u64> = behind.collect();
        let behind = behind.chunk_by(|a, b| a == b).filter(|same| same.len() * 2 > self.shape.slots);
        let mut again: Vec<u64> = hidden.chain(behind.map(|same| same[0])).collect();
        again.sort_unstable();
        again.dedup();
        for head in again {
            if let Some(piece) = self.piece(head, sink) {
                self.hand_over(&piece, &order, sink, &mut Vec::new())?;
            }
        }
        // The upper half of an unfinished split is in two leaves, and is misplaced in one.
        for (_, subnode, item) in astray {
            let guards = (K::pin(), pin());
            let key = self.keys.read(item.key, &guards.0);
            if !sink.holds(key, self.values.read(item.value, &guards.1)) {
                sink.lost += 1;
                sink.find(format!("subnode {subnode:#x}"), "a key that does not belong there");
            }
        }
        Ok(())
    }

    /// Walks the chain of a leaf as far as possible; returns `None` if it has no readable key.
    fn piece(&self, head: u64, sink: &mut SalvageSink<'_, K>) -> Option<Piece<K>> {
        let (bitmap, staged) = unstage(self.header(head).bitmap.load(self.pool.medium()));
        let staged = staged.filter(|&bit| bit < LEAF_SLOTS_MAX && self.shape.resident);
        let mut chain = vec![head];
        while chain.len() < self.shape.subnodes_max {
            // The free tag also ends a chain: the bits show whether the tail is still valid.
            let next = self.next(chain[chain.len() - 1]);
            if next == END || self.census.bit(next).is_none() || chain.contains(&next) {
                break;
            }
            chain.push(next);
        }
        let sound = bitmap >> (chain.len() * self.shape.slots) == 0;
        let least = || K::owned(K::least());
        let mut piece = Piece { chain, bitmap, staged, keys: [least(), least(), least()], sound };
        let guard = K::pin();
        let words = self.items(&piece).filter(|item| self.keys.verify(item.key).is_ok());
        let mut keys: Vec<K::Ref<'_>> = words.map(|item| self.keys.read(item.key, &guard)).collect();
        keys.sort_unstable();
        if let (Some(&first), Some(&last)) = (keys.first(), keys.last()) {
            piece.keys = [first, keys[keys.len() / 2], last].map(|key| K::owned(key));
            let twice = keys.windows(2).filter(|pair| pair[0] == pair[1]).count();
            if twice > 0 {
                sink.lost += twice as u64;
                sink.find(format!("leaf at {head:#x}"), "a key that stands there twice");
            }
            return Some(piece);
        }
        if bitmap != 0 {
            sink.lost += u64::from(bitmap.count_ones());
            sink.find(format!("leaf at {head:#x}"), "no key of it can be read");
        }
        None
    }

    /// Returns whether recovery would store a staged item in its slot. Otherwise the bits that name the slot may be
    /// damaged, and the slot's own item may count.
    fn is_staged(&self, piece: &Piece<K>, item: &Item) -> bool {
        let is_sound = self.keys.verify(item.key).is_ok() && self.values.verify(item.value).is_ok();
        is_sound && self.items(piece).filter(|other| other.key == item.key).count() == 1
    }

    /// Returns the items of a leaf whose subnodes are known.
    fn items(&self, piece: &Piece<K>) -> impl Iterator<Item = Item> {
        bits(piece.bitmap).filter_map(|bit| {
            let (at, slot) = self.shape.place(bit);
            let subnode = *piece.chain.get(at)?;
            let cell: &Slot = self.pool.at(slot_offset(subnode, slot));
            let medium = self.pool.medium();
            let (mut key, mut value, mut covered) = (cell.key.load(medium), cell.value.load(medium), None);
            if piece.staged == Some(bit) {
                let [staged_key, staged_value] = self.header(piece.chain[0]).annex.load(medium);
                if key != staged_key {
                    (covered, key, value) = (Some(key), staged_key, staged_value);
                }
            }
            Some(Item { at, key, value, covered })
        })
    }

    /// Assigns unreferenced subnodes to leaves with a broken chain if their keys lie within the
    /// leaf's range; counts the remaining ones.
    fn rejoin(&self, pieces: &mut Vec<Piece<K>>, sink: &mut SalvageSink<'_, K>) {
        for at in 0..pieces.len() {
            let piece = &pieces[at];
            let beyond = piece.bitmap >> (piece.chain.len() * self.shape.slots);
            if beyond == 0 || piece.chain.is_empty() {
                continue;
            }
            let subnodes = (64 - beyond.leading_zeros() as usize).div_ceil(self.shape.slots);
            let among = |other: &Piece<K>| other.keys[0] < piece.keys[2] && piece.keys[0] < other.keys[2];
            let near = [at + 1, at.wrapping_sub(1), at + 2, at.wrapping_sub(2)];
            let rest = near
                .into_iter()
                .filter(|_| piece.chain.len() + subnodes <= self.shape.subnodes_max)
                .find(|&other| {
                    pieces.get(other).is_some_and(|other| other.chain.len() == subnodes && among(other))
                });
            if let Some(rest) = rest {
                let chain = std::mem::take(&mut pieces[rest].chain);
                pieces[at].chain.extend(chain);
            } else {
                let items = u64::from(beyond.count_ones());
                let head = piece.chain[0];
                sink.lost += items;
                sink.find(format!("leaf at {head:#x}"), format!("{items} items beyond the end of its chain"));
            }
        }
        pieces.retain(|piece| !piece.chain.is_empty());
    }

    /// Passes on the items of a leaf, except those whose keys lie beyond the adjacent leaves.
    fn hand_over(
        &self,
        piece: &Piece<K>,
        order: &[K::Owned],
        sink: &mut SalvageSink<'_, K>,
        astray: &mut Vec<(usize, u64, Item)>,
    ) -> Result<()> {
        let median = &piece.keys[1];
        let left = order.partition_point(|other| other < median).checked_sub(1).map(|at| &order[at]);
        let right = order.get(order.partition_point(|other| other <= median));
        let guards = (K::pin(), pin());
        let limit =
            |median: Option<&K::Owned>| median.map_or(Bound::Unbounded, |key| Bound::Included(key.clone()));
        let span = || (limit(left), limit(right));
        for item in self.items(piece) {
            let subnode = piece.chain[item.at];
            if let Some(own) = item.covered.filter(|_| !self.is_staged(piece, &item)) {
                let place = format!("subnode {subnode:#x}");
                let what = "a key behind a damaged staged item";
                match self.keys.verify(own) {
                    Ok(()) => sink.find_of_key(self.keys.read(own, &guards.0), place, what),
                    Err(_) => sink.find_in(span(), place, what),
                }
            }
            if let Err(error) = self.keys.verify(item.key) {
                sink.lost += 1;
                sink.find_in(span(), format!("subnode {subnode:#x}"), error.to_string());
                continue;
            }
            if let Err(error) = self.values.verify(item.value) {
                // The bit may be damaged as well as the item, and other bits with it.
                sink.lost += 1;
                sink.find_in(span(), format!("subnode {subnode:#x}"), error.to_string());
                continue;
            }
            let key = self.keys.read(item.key, &guards.0);
            let below = left.is_some_and(|left| key < K::shorten(K::borrow(left)));
            let above = right.is_some_and(|right| key > K::shorten(K::borrow(right)));
            if below || above {
                astray.push((item.at, subnode, item));
            } else {
                sink.keep(key, self.values.read(item.value, &guards.1))?;
            }
        }
        Ok(())
    }
}
