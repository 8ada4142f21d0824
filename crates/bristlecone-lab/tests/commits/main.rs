//! Batches, transactions and snapshots: every crash, what each flush and fence is for, and how many there are.

mod counted;
mod crashes;
mod full;
