//! Batches, transactions and snapshots: every crash, the necessity of each flush and fence, and
//! their number.

mod counted;
mod crashes;
mod full;
