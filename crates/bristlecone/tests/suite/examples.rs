//! The examples, run unchanged: each asserts its results, and leaves no file.

#[path = "../../examples/counters.rs"]
mod counters;
#[path = "../../examples/larger_pool.rs"]
mod larger_pool;
#[path = "../../examples/new_value_type.rs"]
mod new_value_type;
#[path = "../../examples/replication.rs"]
#[allow(dead_code, reason = "its arguments are those of the test")]
mod replication;
#[path = "../../examples/secondary_index.rs"]
mod secondary_index;
#[path = "../../examples/sessions.rs"]
mod sessions;
#[path = "../../examples/sizing.rs"]
#[allow(dead_code, reason = "its arguments are those of the test")]
mod sizing;
#[path = "../../examples/time_series.rs"]
mod time_series;
#[path = "../../examples/transfer.rs"]
mod transfer;
#[path = "../../examples/two_processes.rs"]
#[allow(dead_code, reason = "its arguments are those of the test")]
mod two_processes;

#[test]
fn counters_count_every_step() {
    counters::main().unwrap();
}

#[test]
fn larger_pool_has_everything() {
    larger_pool::main().unwrap();
}

#[test]
fn new_value_type_survives_interruptions() {
    new_value_type::main().unwrap();
}

#[test]
fn replication_follows_every_change() {
    replication::run(20_000, std::time::Duration::from_millis(300), std::path::Path::new("/dev/shm"))
        .unwrap();
}

#[test]
fn secondary_index_is_repaired() {
    secondary_index::main().unwrap();
}

#[test]
fn sessions_expire() {
    sessions::main().unwrap();
}

#[test]
fn sizing_measures_every_design() {
    sizing::measure(500).unwrap();
}

#[test]
fn time_series_are_read_by_ranges() {
    time_series::main().unwrap();
}

#[test]
fn transfers_keep_the_total() {
    transfer::main().unwrap();
}

/// The writer is this test in a separate process.
#[test]
fn two_processes_one_of_which_is_killed() {
    let this = "examples::two_processes_one_of_which_is_killed";
    two_processes::run(&[this, "--exact", "--nocapture"]).unwrap();
}
