//! The tests of the simulator against structures of one screen, with known bugs.

mod endless;
mod schedules;
mod toy_map;
