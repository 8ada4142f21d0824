//! Saving the items of a damaged tree: its leaves and its log, as [`relics`](crate::trees::relics) takes
//! them.

use std::sync::Arc;

use bristlecone_pm::{Log, LogEntry, Medium, PoolFile, RecordSpec, Records, Result, SlotKind, TreeEntry};

use super::CclBTreeOptions;
use super::layout::{LEAF_BYTES, LEAVES, Leaf, LeafWord};
use crate::shared::codec::{Codec, KeyCodec};
use crate::shared::slot::bits;
use crate::trees::Rescue;
use crate::trees::relics::{LeafSlots, Relic, Relics};

/// Hands over every item that can be believed.
pub(super) fn save<K: KeyCodec, V: Codec, M: Medium>(
    pool: &Arc<PoolFile<M>>,
    entry: &TreeEntry,
    options: CclBTreeOptions,
    rescue: &mut Rescue<'_, K, V>,
) -> Result<()> {
    let entries = (options.log_entries > 0).then_some(options.log_entries as usize);
    let (log, chunks) = Log::open(pool, entry.id, entries);
    for flaw in chunks.iter().filter_map(|chunk| log.flaw(chunk)) {
        rescue.find("log".to_owned(), flaw.to_string());
    }
    let logged: Vec<Result<LogEntry>> = chunks.iter().flat_map(|chunk| log.remains(chunk)).collect();
    let relics = Relics {
        keys: &Records::open(pool, RecordSpec::new(entry.id, SlotKind::KEY_RECORD))?,
        values: &Records::open(pool, RecordSpec::new(entry.id, SlotKind::VALUE_RECORD))?,
        first: pool.anchor(entry.id).load(pool.medium()),
        slots: LeafSlots::of(pool, entry.id, LEAVES, LEAF_BYTES),
        read: &|leaf| relic(pool, leaf, options.leaf_slots),
        logged,
    };
    relics.save(rescue)
}

fn relic<M: Medium>(pool: &PoolFile<M>, offset: u64, slots: u64) -> Relic {
    let (leaf, medium) = (pool.at::<Leaf>(offset), pool.medium());
    let word = LeafWord::unpack(leaf.header.word.load(medium));
    let item = |slot: usize| {
        let slot = &leaf.slots[slot];
        [slot.key.load(medium), slot.value.load(medium)]
    };
    let within = word.bitmap & ((1 << slots) - 1);
    Relic {
        next: word.next,
        stamp: leaf.header.stamp.load(medium),
        fence: leaf.slots[0].key.load(medium),
        items: bits(within).map(item).collect(),
        flaw: (within != word.bitmap).then_some("slots beyond a leaf"),
    }
}
