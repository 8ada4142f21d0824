//! The state of the machine: caches, directory, memory, and what each thread has under way.

use bristlecone_pm::LINE_BYTES;
use bristlecone_pm::sync::wait::Use;

use super::cache::Cache;
use super::directory::Line;
use super::memory::Memory;
use super::pages::{PAGE_LINES, Pages};
use super::pending::{Fills, StoreBuffer};
use super::tally::{CoreTallies, CoreTally, Latencies};
use super::{Machine, Placement, Time, picoseconds};
use crate::counts::OUTSIDE;

/// Number of recently used lines of a thread behind which the next ones count as sequential.
const RECENT: usize = 4;
/// Number of movements of a line after which its callers are recorded.
const MOVED_OFTEN: u32 = 64;
/// Virtual time after which an operation counts as hung: ten seconds.
const OPERATION_MAX: Time = 10_000_000_000_000;

/// Times in picoseconds.
struct Times {
    operation: Time,
    step: Time,
    /// A step of a thread that shares its core.
    shared_step: Time,
    l2: Time,
    llc: Time,
    transfer: Time,
    remote_transfer: Time,
    remote_memory: Time,
    locked: Time,
    fence: Time,
    pause: Time,
    wake: Time,
}

impl Times {
    fn new(machine: &Machine) -> Self {
        Self {
            operation: picoseconds(machine.operation_ns),
            step: picoseconds(machine.step_ns),
            shared_step: picoseconds(machine.step_ns * machine.shared_core),
            l2: picoseconds(machine.l2_ns),
            llc: picoseconds(machine.llc_ns),
            transfer: picoseconds(machine.transfer_ns),
            remote_transfer: picoseconds(machine.remote_transfer_ns),
            remote_memory: picoseconds(machine.remote_memory_ns),
            locked: picoseconds(machine.locked_ns),
            fence: picoseconds(machine.full_fence_ns),
            pause: picoseconds(machine.pause_ns),
            wake: picoseconds(machine.wake_ns),
        }
    }
}

struct Core {
    l1: Cache,
    l2: Cache,
}

/// A simulated thread.
#[derive(Default)]
pub(super) struct Thread {
    pub time: Time,
    core: usize,
    shares_core: bool,
    kind: u8,
    began: Time,
    stores: StoreBuffer,
    fills: Fills,
    /// When the modules have accepted what the thread flushed.
    flushed: Time,
    has_flushed: bool,
    recent: [u32; RECENT],
    held: Held,
    /// Attempts to acquire the present lock.
    attempts: u32,
}

/// A line that a core has just got from another one. It keeps the line until the request of the next core arrives there,
/// which takes half of a transfer. The directory may name a later owner already.
#[derive(Clone, Copy)]
struct Held {
    line: u32,
    until: Time,
    exclusive: bool,
}

impl Default for Held {
    fn default() -> Self {
        Self { line: u32::MAX, until: 0, exclusive: false }
    }
}

/// The bytes of the medium, and whether its caches survive.
#[derive(Clone, Copy)]
pub(super) struct Bytes {
    pub base: usize,
    pub length: usize,
}

pub(super) struct State {
    machine: Machine,
    times: Times,
    medium: Bytes,
    pages: Pages,
    lines: Vec<Line>,
    cores: Vec<Core>,
    llcs: Vec<Cache>,
    memory: Memory,
    pub threads: Vec<Thread>,
    pub tallies: CoreTallies,
    pub latencies: Latencies,
    /// Lines that have moved often, for which the callers are wanted.
    pub often: Vec<u32>,
    next_home: u8,
}

impl State {
    pub fn new(machine: &Machine, threads: usize, medium: Bytes) -> Self {
        let core = |_| Core {
            l1: Cache::new(machine.l1_bytes, machine.l1_ways),
            l2: Cache::new(machine.l2_bytes, machine.l2_ways),
        };
        let cores = machine.sockets * machine.cores;
        let thread = |number: usize| {
            let core = number % cores;
            Thread { core, shares_core: core + cores < threads || number >= cores, ..Thread::default() }
        };
        Self {
            machine: *machine,
            times: Times::new(machine),
            medium,
            pages: Pages::default(),
            lines: Vec::new(),
            cores: (0..cores.min(threads)).map(core).collect(),
            llcs: (0..machine.sockets).map(|_| Cache::new(machine.llc_bytes, machine.llc_ways)).collect(),
            memory: Memory::new(machine, threads),
            threads: (0..threads).map(thread).collect(),
            tallies: CoreTallies::default(),
            latencies: Latencies::default(),
            often: Vec::new(),
            next_home: 0,
        }
    }

    fn socket_of(&self, core: usize) -> usize {
        core / self.machine.cores
    }

    /// Begins an operation of a thread.
    pub fn begin(&mut self, number: usize, kind: u8) {
        let thread = &mut self.threads[number];
        thread.kind = kind;
        thread.began = thread.time;
        thread.time += self.times.operation;
    }

    /// Ends the operation of a thread.
    pub fn end(&mut self, number: usize) {
        let thread = &mut self.threads[number];
        let kind = std::mem::replace(&mut thread.kind, OUTSIDE);
        self.tallies.of(kind).operations += 1;
        self.latencies.record(kind, thread.time - thread.began);
    }

    /// Lets all threads continue at the same time.
    pub fn meet(&mut self) -> Time {
        let last = self.threads.iter().map(|thread| thread.time.max(thread.stores.ends())).max().unwrap_or(0);
        self.threads.iter_mut().for_each(|thread| thread.time = last);
        last
    }

    fn tally(&mut self, number: usize) -> &mut CoreTally {
        self.tallies.of(self.threads[number].kind)
    }

    /// Returns the line of an address.
    fn line(&mut self, address: usize, core: usize) -> u32 {
        let (line, is_new) = self.pages.line(address);
        if is_new {
            let offset = address.wrapping_sub(self.medium.base);
            let medium = offset < self.medium.length;
            let home = self.home(medium, core);
            self.lines.extend((0..PAGE_LINES).map(|_| Line::new(home, medium)));
        }
        line
    }

    fn home(&mut self, medium: bool, core: usize) -> u8 {
        match self.machine.placement {
            Placement::First if medium => 0,
            Placement::Interleaved if medium => {
                self.next_home = (self.next_home + 1) % self.machine.sockets as u8;
                self.next_home
            }
            _ => self.socket_of(core) as u8,
        }
    }

    /// Returns the number of a line in the device.
    fn device_line(&self, line: u32) -> usize {
        (self.pages.address(line) - self.medium.base) / LINE_BYTES
    }

    /// Executes a step of a thread: its costs and its effects on the caches.
    pub fn step(&mut self, number: usize, address: usize, by: Use) {
        let thread = &mut self.threads[number];
        let (core, shares) = (thread.core, thread.shares_core);
        thread.time += if shares { self.times.shared_step } else { self.times.step };
        if by != Use::LockAgain {
            thread.attempts = 0;
        }
        self.tally(number).steps += 1;
        if by == Use::Fence {
            self.settle(number);
            self.threads[number].time += self.times.fence;
            return;
        }
        let line = self.line(address, core);
        match by {
            Use::Load => self.load(number, line),
            Use::Store => self.store(number, line),
            Use::Locked => self.locked(number, line, 1),
            // A lock of the standard library executes one locked instruction when it is acquired and one when it is
            // released.
            Use::Lock => self.locked(number, line, 2),
            Use::LockAgain => self.lock_again(number, line),
            Use::Prefetch => self.prefetch(number, line),
            Use::Fence => unreachable!("handled above"),
        }
        let thread = &mut self.threads[number];
        thread.recent.rotate_right(1);
        thread.recent[0] = line;
    }

    fn load(&mut self, number: usize, line: u32) {
        let now = self.threads[number].time;
        let arrives = self.reach(number, line, false, now);
        let thread = &mut self.threads[number];
        thread.time = arrives;
        if let Some(filled) = thread.fills.arrival(line, now) {
            thread.time = thread.time.max(filled);
        }
    }

    fn store(&mut self, number: usize, line: u32) {
        let now = self.threads[number].time;
        let arrives = self.reach(number, line, true, now);
        let thread = &mut self.threads[number];
        let filled = thread.fills.arrival(line, now).unwrap_or(0);
        if arrives > now {
            thread.fills.push(line, arrives);
        }
        thread.time = thread.stores.push(now, arrives.max(filled), self.machine.store_buffer);
    }

    fn locked(&mut self, number: usize, line: u32, instructions: u64) {
        self.settle(number);
        let now = self.threads[number].time;
        let arrives = self.reach(number, line, true, now);
        self.threads[number].time = arrives + instructions * self.times.locked;
        self.tally(number).locked += instructions;
    }

    /// Another attempt to acquire a lock: a thread that has tried often sleeps until it is woken.
    fn lock_again(&mut self, number: usize, line: u32) {
        self.load(number, line);
        let thread = &mut self.threads[number];
        thread.attempts += 1;
        if thread.attempts > self.machine.spins {
            self.wait(number, self.times.wake);
        }
    }

    fn prefetch(&mut self, number: usize, line: u32) {
        let core = self.threads[number].core;
        if self.lines[line as usize].is_shared_by(core) {
            return;
        }
        let thread = &mut self.threads[number];
        let now = thread.fills.free_at(thread.time, self.machine.fill_buffers);
        thread.time = now;
        let arrives = self.reach(number, line, false, now);
        self.threads[number].fills.push(line, arrives);
    }

    /// Fetches lines that are read as a slice: the processor fetches several at the same time.
    pub fn read_lines(&mut self, number: usize, address: usize, bytes: usize) {
        let core = self.threads[number].core;
        let first = address / LINE_BYTES;
        let end = (address + bytes).div_ceil(LINE_BYTES);
        for at in first..end {
            let line = self.line(at * LINE_BYTES, core);
            self.prefetch(number, line);
        }
        for at in first..end {
            self.step(number, at * LINE_BYTES, Use::Load);
        }
    }

    /// Begins to write a line back.
    pub fn flush(&mut self, number: usize, address: usize) {
        let core = self.threads[number].core;
        let line = self.line(address, core);
        let device = self.device_line(line);
        let Line { home, dirty, .. } = self.lines[line as usize];
        let thread = &mut self.threads[number];
        // A flush follows the stores to its line.
        thread.time = self.memory.flush(home, device, thread.time);
        thread.has_flushed = true;
        let begins = thread.time.max(thread.stores.ends());
        self.tally(number).flushes += 1;
        if dirty {
            self.lines[line as usize].dirty = false;
            self.lines[line as usize].modified = false;
            let far = self.far(home, core);
            let tally = self.tallies.of(self.threads[number].kind);
            let accepted = self.memory.write_device(home, device, begins + far, tally);
            let thread = &mut self.threads[number];
            thread.flushed = thread.flushed.max(accepted);
        }
        if self.machine.device.clwb_evicts {
            self.drop_everywhere(line);
        }
    }

    /// Waits for the flushes of a thread, and for its stores.
    pub fn drain(&mut self, number: usize) {
        self.settle(number);
        let fence = self.memory.fence();
        let thread = &mut self.threads[number];
        if std::mem::take(&mut thread.has_flushed) {
            thread.time += fence;
            self.tally(number).fences += 1;
        }
    }

    /// Waits until the stores of a thread have taken effect and its flushes are accepted.
    fn settle(&mut self, number: usize) {
        let thread = &mut self.threads[number];
        thread.time = thread.time.max(thread.stores.ends()).max(thread.flushed);
    }

    /// Spends a round of a waiting loop.
    pub fn pause(&mut self, number: usize) {
        self.wait(number, self.times.pause);
    }

    fn wait(&mut self, number: usize, time: Time) {
        let thread = &mut self.threads[number];
        thread.time += time;
        let waited = thread.time - thread.began;
        let tally = self.tally(number);
        tally.waits += 1;
        tally.wait_ps += time;
        let is_hung = waited > OPERATION_MAX && !std::thread::panicking();
        assert!(!is_hung, "thread {number} has been in one operation for ten seconds of virtual time");
    }

    /// Returns the additional latency of another socket's memory.
    fn far(&self, home: u8, core: usize) -> Time {
        if usize::from(home) == self.socket_of(core) { 0 } else { self.times.remote_memory }
    }

    /// Brings a line into the caches of a thread's core, for a store if `stores`. Returns when it is there.
    fn reach(&mut self, number: usize, line: u32, stores: bool, now: Time) -> Time {
        let core = self.threads[number].core;
        let state = &mut self.lines[line as usize];
        if state.is_shared_by(core) && (!stores || state.is_owned_by(core)) {
            state.modified |= stores;
            state.dirty |= stores;
            if stores {
                state.kind = self.threads[number].kind;
            }
            return self.hit(number, line, now);
        }
        let held = self.threads[number].held;
        if held.line == line && now <= held.until && (held.exclusive || !stores) {
            state.dirty |= stores;
            return now;
        }
        let was_there = state.is_shared_by(core);
        let arrives = self.fetch(number, line, stores, now);
        let state = &mut self.lines[line as usize];
        state.join(core, stores);
        if stores {
            state.kind = self.threads[number].kind;
        }
        if !was_there {
            self.fill(core, line, now);
        }
        arrives
    }

    /// Accesses a line that the core has.
    fn hit(&mut self, number: usize, line: u32, now: Time) -> Time {
        let core = &mut self.cores[self.threads[number].core];
        if core.l1.hit(line) {
            return now;
        }
        core.l2.hit(line);
        core.l1.fill(line);
        self.tally(number).l2_hits += 1;
        now + self.soon(number, line, self.times.l2)
    }

    /// Returns the part of a latency that remains if the thread accesses lines in order.
    fn soon(&self, number: usize, line: u32, latency: Time) -> Time {
        let is_next = !line.is_multiple_of(PAGE_LINES) && self.threads[number].recent.contains(&(line - 1));
        if is_next { (latency as f64 * self.machine.sequential) as Time } else { latency }
    }

    /// Fetches a line, or the right to store to it, from where it is.
    fn fetch(&mut self, number: usize, line: u32, stores: bool, now: Time) -> Time {
        let core = self.threads[number].core;
        let state = self.lines[line as usize];
        if let Some(owner) = state.other_owner(core) {
            return self.take_from(number, line, owner, stores, now);
        }
        if state.others(core).next().is_some() {
            return match stores {
                true => self.invalidate(number, line, now),
                false => self.share(number, line, now),
            };
        }
        if state.is_shared_by(core) {
            // The only copy, but the directory does not know.
            return now + self.soon(number, line, self.times.llc);
        }
        self.miss(number, line, stores, now)
    }

    /// Fetches a line from the core that owns it.
    fn take_from(&mut self, number: usize, line: u32, owner: usize, stores: bool, now: Time) -> Time {
        let core = self.threads[number].core;
        let is_remote = self.socket_of(owner) != self.socket_of(core);
        let modified = self.lines[line as usize].modified;
        if stores {
            self.drop_everywhere(line);
        } else {
            self.lines[line as usize].disown();
            self.keep(self.socket_of(owner), line, now);
        }
        if modified || stores {
            self.note_move(number, line, modified, stores, is_remote);
        } else {
            self.tally(number).shared_fetches += 1;
        }
        let latency = self.times.transfer + if is_remote { self.times.remote_transfer } else { 0 };
        self.after_transfer(number, line, (latency, stores), now)
    }

    /// Takes a line that other cores have for reading.
    fn invalidate(&mut self, number: usize, line: u32, now: Time) -> Time {
        let core = self.threads[number].core;
        let socket = self.socket_of(core);
        let others: Vec<usize> = self.lines[line as usize].others(core).collect();
        let is_remote = others.iter().any(|other| self.socket_of(*other) != socket);
        for other in others {
            self.cores[other].l1.remove(line);
            self.cores[other].l2.remove(line);
            self.lines[line as usize].leave(other);
        }
        self.llcs.iter_mut().for_each(|llc| _ = llc.remove(line));
        self.note_move(number, line, false, true, is_remote);
        let latency = self.times.transfer + if is_remote { self.times.remote_transfer } else { 0 };
        self.after_transfer(number, line, (latency, true), now)
    }

    /// Reads a line that other cores have for reading.
    fn share(&mut self, number: usize, line: u32, now: Time) -> Time {
        let core = self.threads[number].core;
        let socket = self.socket_of(core);
        let is_near = self.lines[line as usize].others(core).any(|other| self.socket_of(other) == socket);
        let is_near = self.llcs[socket].hit(line) || is_near;
        let latency = self.times.llc + if is_near { 0 } else { self.times.remote_transfer };
        self.tally(number).shared_fetches += 1;
        now.max(self.lines[line as usize].free_at) + self.soon(number, line, latency)
    }

    /// Transfers of a line follow each other.
    fn after_transfer(
        &mut self,
        number: usize,
        line: u32,
        (latency, exclusive): (Time, bool),
        now: Time,
    ) -> Time {
        let latency = self.soon(number, line, latency);
        let state = &mut self.lines[line as usize];
        let arrives = now.max(state.free_at) + latency;
        state.free_at = arrives;
        self.threads[number].held = Held { line, until: arrives + latency / 2, exclusive };
        arrives
    }

    fn note_move(&mut self, number: usize, line: u32, modified: bool, stores: bool, is_remote: bool) {
        let tally = self.tally(number);
        tally.transfers += u64::from(modified);
        tally.invalidations += u64::from(!modified);
        tally.shared_writes += u64::from(stores);
        tally.remote += u64::from(is_remote);
        let is_inside = self.threads[number].kind != OUTSIDE;
        let state = &mut self.lines[line as usize];
        state.moved += u32::from(is_inside);
        if is_inside && state.moved == MOVED_OFTEN {
            self.often.push(line);
        }
    }

    /// Fetches a line that no core has.
    fn miss(&mut self, number: usize, line: u32, stores: bool, now: Time) -> Time {
        let core = self.threads[number].core;
        let socket = self.socket_of(core);
        let sockets = self.llcs.len();
        let found = (0..sockets).map(|at| (socket + at) % sockets).find(|at| self.llcs[*at].hit(line));
        if let Some(found) = found {
            if stores {
                self.llcs.iter_mut().for_each(|llc| _ = llc.remove(line));
            }
            self.tally(number).shared_fetches += 1;
            let latency = self.times.llc + if found == socket { 0 } else { self.times.remote_transfer };
            return now + self.soon(number, line, latency);
        }
        let Line { home, medium, .. } = self.lines[line as usize];
        let arrives = self.far(home, core) + self.read_memory(number, line, home, medium, now);
        now + self.soon(number, line, arrives - now)
    }

    fn read_memory(&mut self, number: usize, line: u32, home: u8, medium: bool, now: Time) -> Time {
        let tally = self.tallies.of(self.threads[number].kind);
        if medium {
            let device = (self.pages.address(line) - self.medium.base) / LINE_BYTES;
            return self.memory.read_device(home, device, now, tally);
        }
        tally.dram_reads += 1;
        self.memory.read_dram(home, now)
    }

    /// Puts a line into the caches of a core.
    fn fill(&mut self, core: usize, line: u32, now: Time) {
        let caches = &mut self.cores[core];
        caches.l1.fill(line);
        let Some(evicted) = caches.l2.fill(line) else { return };
        caches.l1.remove(evicted);
        let state = &mut self.lines[evicted as usize];
        state.leave(core);
        if !state.is_private() {
            self.keep(self.socket_of(core), evicted, now);
        }
    }

    /// Puts a line into the last-level cache of a socket.
    fn keep(&mut self, socket: usize, line: u32, now: Time) {
        if self.llcs[socket].hit(line) {
            return;
        }
        let Some(evicted) = self.llcs[socket].fill(line) else { return };
        let state = &mut self.lines[evicted as usize];
        if state.dirty && !state.is_private() {
            state.dirty = false;
            let Line { home, medium, kind, .. } = *state;
            if medium {
                let device = self.device_line(evicted);
                self.memory.write_device(home, device, now, self.tallies.of(kind));
            } else {
                self.memory.write_dram(home, now);
            }
        }
    }

    /// Removes a line from every cache.
    fn drop_everywhere(&mut self, line: u32) {
        let all: Vec<usize> = self.lines[line as usize].all().collect();
        for core in all {
            self.cores[core].l1.remove(line);
            self.cores[core].l2.remove(line);
            self.lines[line as usize].leave(core);
        }
        self.llcs.iter_mut().for_each(|llc| _ = llc.remove(line));
    }

    /// Returns the address of a line.
    pub fn address(&self, line: u32) -> usize {
        self.pages.address(line)
    }

    /// Returns the lines that moved most often, and how often, and begins to count again.
    pub fn take_moved(&mut self, most: usize) -> Vec<(u32, u32)> {
        let moved = self.lines.iter_mut().enumerate().filter(|(_, line)| line.moved > 0);
        let mut moved: Vec<_> =
            moved.map(|(at, line)| (at as u32, std::mem::take(&mut line.moved))).collect();
        moved.sort_by_key(|(line, moved)| (std::cmp::Reverse(*moved), *line));
        moved.truncate(most);
        moved
    }
}
