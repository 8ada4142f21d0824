//! Restarts that keep the index over a kill: each store as a kill point, and real kills.

#[path = "../suite/common.rs"]
#[allow(dead_code, unused_imports, reason = "shared with the suite, which has more tests")]
mod common;

mod kill_points;
mod kills;
