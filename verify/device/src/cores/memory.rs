//! Memory behind the caches: the DRAM of each socket, and its modules of the device.

use super::tally::CoreTally;
use super::{Machine, Time, picoseconds};
use crate::counts::Writer;
use crate::media::Media;
use crate::modules::{Costs, Modules};
use crate::profile::Processor;

/// The memory of every socket.
pub(super) struct Memory {
    costs: Costs,
    dram: Time,
    dram_line: Time,
    sockets: Vec<Socket>,
}

struct Socket {
    /// When its DRAM has finished the accepted work.
    busy_until: Time,
    media: Media,
    modules: Modules,
}

impl Memory {
    pub fn new(machine: &Machine, threads: usize) -> Self {
        let device = &machine.device;
        let socket = |_| Socket { busy_until: 0, media: Media::new(*device), modules: Modules::new(device) };
        Self {
            costs: Costs::new(threads, device, &Processor::default()),
            dram: picoseconds(machine.dram_ns),
            dram_line: picoseconds(machine.dram_line_ns),
            sockets: (0..machine.sockets).map(socket).collect(),
        }
    }

    /// Reads a line of DRAM from `time` on, and returns when it arrives.
    pub fn read_dram(&mut self, home: u8, time: Time) -> Time {
        let socket = &mut self.sockets[usize::from(home)];
        let begins = time.max(socket.busy_until);
        socket.busy_until = begins + self.dram_line;
        begins + self.dram
    }

    /// Writes a line back to DRAM, for which no thread waits.
    pub fn write_dram(&mut self, home: u8, time: Time) {
        let socket = &mut self.sockets[usize::from(home)];
        socket.busy_until = time.max(socket.busy_until) + self.dram_line;
    }

    /// Reads a line of the device, given by its number there, and returns when it arrives.
    pub fn read_device(&mut self, home: u8, line: usize, time: Time, tally: &mut CoreTally) -> Time {
        let socket = &mut self.sockets[usize::from(home)];
        let media = socket.media.read(line);
        tally.device_reads += 1;
        tally.media_reads += u64::from(media);
        let module = socket.media.module_of(line);
        socket.modules.read(time, module, media, &self.costs)
    }

    /// Writes a line of the device, and returns when a module accepts it.
    pub fn write_device(&mut self, home: u8, line: usize, time: Time, tally: &mut CoreTally) -> Time {
        let socket = &mut self.sockets[usize::from(home)];
        let sent = socket.media.write(line, Writer::none());
        tally.device_writes += 1;
        if let Some(write) = &sent {
            tally.media_writes += 1;
            tally.media_reads += u64::from(write.read_first);
        }
        let module = socket.media.module_of(line);
        socket.modules.write(time, module, sent.is_some(), &self.costs)
    }

    /// Returns when a thread has issued the flush of a line.
    pub fn flush(&mut self, home: u8, line: usize, time: Time) -> Time {
        self.sockets[usize::from(home)].modules.flush(time, line as u32, &self.costs)
    }

    /// Returns the duration of a fence after flushes.
    pub fn fence(&self) -> Time {
        self.costs.fence
    }
}
