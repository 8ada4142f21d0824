//! What a terminal sends to the processes in it.

use std::process::Child;

use rustix::process::{Pid, Signal, kill_process};

/// Asks a process to end, as when the machine goes down.
pub fn terminate(child: &Child) {
    kill_process(Pid::from_raw(child.id() as i32).unwrap(), Signal::TERM).unwrap();
}

/// Presses Ctrl-C for a process.
pub fn interrupt(child: &Child) {
    kill_process(Pid::from_raw(child.id() as i32).unwrap(), Signal::INT).unwrap();
}
