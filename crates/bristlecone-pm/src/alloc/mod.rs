//! Space for trees: [slots](heap) of one size in chunks of the pool, [byte strings](records) in slots, and the
//! [sweep] that finds the free slots of a heap that was opened without marking them.

mod heap;
mod records;
mod slots;
mod sparse;
mod sweep;

pub use self::heap::{ChunkRange, Heap, HeapSpec, HeapStats, Liveness};
pub(crate) use self::records::is_record_class;
pub use self::records::{
    AllMarks, Census, KEY_BYTES_MAX, Marks, RecordSpec, Records, VALUE_BYTES_MAX, record_bytes_max,
    record_slot_bytes,
};
pub use self::sparse::Sparse;
