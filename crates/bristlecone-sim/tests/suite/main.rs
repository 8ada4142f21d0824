//! The tests of the simulator against structures of one screen, with known bugs.

mod cabinet;
mod loops;
mod schedules;
