//! Tests of the store: openraft's own, commands, logs, snapshots, restarts and kills.

mod commands;
mod kills;
mod logs;
mod openraft_suite;
mod snapshots;
mod stores;
