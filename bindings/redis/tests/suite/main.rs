//! The module in real servers, started on loopback with directories of their own.

mod bad_input;
mod client;
mod cluster;
mod commands;
mod crashes;
mod field_expiry;
mod files;
mod forks;
mod getex;
mod keyspace;
mod long_changes;
mod long_ranges;
mod mixed;
mod more_commands;
mod queries;
mod quiet;
mod replicas;
mod replies;
mod server;
mod settings;
mod small_maps;
