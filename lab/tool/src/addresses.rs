//! Addresses that are the same in each process: a simulation depends on them where memory of the system is aligned.

use std::os::unix::process::CommandExt;

/// Restarts the program without random addresses, unless it already runs so. Where the system refuses, the program
/// continues: counts may then differ by some parts in a thousand from run to run.
#[cfg(target_os = "linux")]
pub fn fix() {
    const ASK: libc::c_ulong = 0xffff_ffff;
    // SAFETY: asks for the execution domain, and sets a flag of it; touches no memory.
    let set = |flags| unsafe { libc::personality(flags) };
    let Ok(now) = libc::c_ulong::try_from(set(ASK)) else { return };
    let wanted = now | libc::ADDR_NO_RANDOMIZE as libc::c_ulong;
    if now == wanted || set(wanted) < 0 {
        return;
    }
    let arguments: Vec<_> = std::env::args_os().collect();
    if let (Ok(program), Some((name, rest))) = (std::env::current_exe(), arguments.split_first()) {
        // Returns only if it fails.
        let _ = std::process::Command::new(program).arg0(name).args(rest).exec();
    }
}

/// Does nothing on other systems.
#[cfg(not(target_os = "linux"))]
pub fn fix() {}
