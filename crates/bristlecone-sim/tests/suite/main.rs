//! The tests of the simulator against structures of one screen, with known bugs.

mod anomalies;
mod crashes;
mod endless;
mod places;
mod schedules;
mod toy_map;
