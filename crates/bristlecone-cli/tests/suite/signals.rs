//! Signals that a terminal sends to its processes.

use std::process::Child;

use rustix::process::{Pid, Signal, kill_process};

/// Sends SIGTERM to a process, like a shutdown of the machine.
pub fn terminate(child: &Child) {
    kill_process(Pid::from_raw(child.id() as i32).unwrap(), Signal::TERM).unwrap();
}

/// Sends SIGINT to a process, like Ctrl-C.
pub fn interrupt(child: &Child) {
    kill_process(Pid::from_raw(child.id() as i32).unwrap(), Signal::INT).unwrap();
}
