//! Saving the items of a damaged tree: its leaves and its logs, as [`relics`](crate::trees::relics) takes
//! them.

use std::sync::Arc;

use bristlecone_pm::{Log, LogEntry, Medium, PoolFile, RecordSpec, Records, Result, SlotKind, TreeEntry};

use super::LodgeTreeOptions;
use super::layout::{Header, LEAVES, LeafWord, leaf_bytes, slot_offset};
use crate::shared::codec::{Codec, KeyCodec};
use crate::shared::slot::{Slot, bits};
use crate::trees::Rescue;
use crate::trees::relics::{LeafSlots, Relic, Relics};

/// Hands over every item that can be believed.
pub(super) fn save<K: KeyCodec, V: Codec, M: Medium>(
    pool: &Arc<PoolFile<M>>,
    entry: &TreeEntry,
    options: LodgeTreeOptions,
    rescue: &mut Rescue<'_, K, V>,
) -> Result<()> {
    let entries = (options.log_entries > 0).then_some(options.log_entries as usize);
    let (log, chunks) = Log::open(pool, entry.id, entries);
    for flaw in chunks.iter().filter_map(|chunk| log.flaw(chunk)) {
        rescue.find("log".to_owned(), flaw.to_string());
    }
    let logged: Vec<Result<LogEntry>> = chunks.iter().flat_map(|chunk| log.remains(chunk)).collect();
    let slots = options.leaf_slots as usize;
    let relics = Relics {
        keys: &Records::open(pool, RecordSpec::new(entry.id, SlotKind::KEY_RECORD))?,
        values: &Records::open(pool, RecordSpec::new(entry.id, SlotKind::VALUE_RECORD))?,
        first: pool.anchor(entry.id).load(pool.medium()),
        slots: LeafSlots::of(pool, entry.id, LEAVES, leaf_bytes(slots) as u64),
        read: &|leaf| relic(pool, leaf, slots),
        logged,
    };
    relics.save(rescue)
}

fn relic<M: Medium>(pool: &PoolFile<M>, leaf: u64, slots: usize) -> Relic {
    let (header, medium) = (pool.at::<Header>(leaf), pool.medium());
    let word = LeafWord::unpack(header.word.load(medium));
    let item = |slot: usize| {
        let slot = pool.at::<Slot>(slot_offset(leaf, slot));
        [slot.key.load(medium), slot.value.load(medium)]
    };
    let within = word.bitmap & ((1 << slots) - 1);
    Relic {
        next: header.siblings[word.selector].load(medium),
        stamp: header.stamp.load(medium),
        fence: header.fence.load(medium),
        items: bits(within).map(item).collect(),
        flaw: (within != word.bitmap).then_some("slots beyond a leaf"),
    }
}
