//! The module in real servers, started on loopback with directories of their own.

mod bad_input;
mod client;
mod cluster;
mod commands;
mod crashes;
mod forks;
mod keyspace;
mod long_ranges;
mod replicas;
mod replies;
mod server;
