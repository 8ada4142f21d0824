//! Tests of the simulator with one-screen structures with known bugs.

mod anomalies;
mod crashes;
mod endless;
mod places;
mod schedules;
mod toy_map;
