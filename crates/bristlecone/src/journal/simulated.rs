//! A disk for tests: a power failure keeps any subset of the unsynced sectors, lengths and names.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard};

use bristlecone_pm::{Error, Result, SharedWords, Storage, StoredFile};
use bristlecone_random::Generator as Random;

const SECTOR: usize = 512;

/// Words in memory.
pub struct Memory(Box<[AtomicU64]>);

impl Memory {
    pub fn new(bytes: u64) -> Self {
        Self((0..bytes / 8).map(|_| AtomicU64::new(0)).collect())
    }
}

impl SharedWords for Memory {
    fn words(&self) -> &[AtomicU64] {
        &self.0
    }
}

/// What runs before an event.
type Watch = Arc<dyn Fn() + Send + Sync>;

/// A simulated disk. Clones are the same disk.
#[derive(Clone)]
pub struct Disk(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    files: Vec<Contents>,
    /// Names as processes see them, and as they are durable.
    names: BTreeMap<String, usize>,
    durable_names: BTreeMap<String, usize>,
    /// Changes of names that are not durable, in order.
    unsynced_names: Vec<Naming>,
    rings: BTreeMap<String, Arc<Memory>>,
    boot: u128,
    /// Number of writes, syncs and changes of names so far.
    events: usize,
    /// The event from which on the machine is off.
    off_at: Option<usize>,
    /// The sync that does nothing, counted from 0, and the number of syncs so far.
    skipped_sync: Option<usize>,
    /// The event of each sync so far, and what it synced.
    syncs: Vec<(usize, String)>,
    /// The event that fails, and does nothing.
    fails_at: Option<usize>,
    /// The write whose last byte is stored wrongly, counted from 0, and the number of writes so far.
    spoilt_write: Option<usize>,
    writes: usize,
    watch: Option<Watch>,
}

#[derive(Clone)]
enum Naming {
    Link(String, usize),
    Rename(String, String),
    Remove(String),
}

#[derive(Clone, Default)]
struct Contents {
    bytes: Vec<u8>,
    durable: Vec<u8>,
    /// Versions of sectors since the last sync.
    unsynced: BTreeMap<usize, Vec<[u8; SECTOR]>>,
}

impl Contents {
    fn sector(bytes: &[u8], number: usize) -> [u8; SECTOR] {
        let mut sector = [0; SECTOR];
        let begin = (number * SECTOR).min(bytes.len());
        let some = &bytes[begin..bytes.len().min(begin + SECTOR)];
        sector[..some.len()].copy_from_slice(some);
        sector
    }

    fn write(&mut self, offset: usize, bytes: &[u8]) {
        self.bytes.resize(self.bytes.len().max(offset + bytes.len()), 0);
        self.bytes[offset..offset + bytes.len()].copy_from_slice(bytes);
        for number in offset / SECTOR..(offset + bytes.len()).div_ceil(SECTOR) {
            self.unsynced.entry(number).or_default().push(Self::sector(&self.bytes, number));
        }
    }

    fn sync(&mut self) {
        self.unsynced.clear();
        self.durable.clone_from(&self.bytes);
    }

    /// What a power failure leaves.
    fn after_failure(&self, random: &mut Random) -> Vec<u8> {
        let (mut bytes, kept) = (self.durable.clone(), random.below(4));
        let (short, long) =
            (self.durable.len().min(self.bytes.len()), self.durable.len().max(self.bytes.len()));
        for (number, versions) in &self.unsynced {
            // None, all, or any of the sectors.
            let at = match kept {
                0 => 0,
                1 => versions.len(),
                _ => random.below(versions.len() as u64 + 1) as usize,
            };
            if let Some(version) = at.checked_sub(1).map(|at| versions[at]) {
                let begin = number * SECTOR;
                bytes.resize(bytes.len().max(begin + SECTOR), 0);
                bytes[begin..begin + SECTOR].copy_from_slice(&version);
            }
        }
        let len = if kept == 1 { long } else { short + random.below((long - short) as u64 + 1) as usize };
        bytes.resize(len, 0);
        bytes
    }
}

fn off() -> Error {
    Error::io("the machine is off", std::io::Error::from(std::io::ErrorKind::BrokenPipe))
}

impl Disk {
    pub fn new() -> Self {
        Self(Arc::new(Mutex::new(State { boot: 1, ..State::default() })))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    /// Returns the number of events so far.
    pub fn events(&self) -> usize {
        self.lock().events
    }

    /// Runs something before each event. It may copy the disk, and must not change it.
    pub fn watch(&self, run: impl Fn() + Send + Sync + 'static) {
        self.lock().watch = Some(Arc::new(run));
    }

    /// Runs nothing before events any more.
    pub fn leave(&self) {
        self.lock().watch = None;
    }

    /// Returns another disk with everything that this one has, synced or not.
    pub fn copied(&self) -> Self {
        let state = self.lock();
        let copied = |ring: &Arc<Memory>| {
            let memory = Memory::new(ring.0.len() as u64 * 8);
            let words = memory.0.iter().zip(&ring.0);
            words.for_each(|(to, from)| to.store(from.load(Relaxed), Relaxed));
            Arc::new(memory)
        };
        Self(Arc::new(Mutex::new(State {
            files: state.files.clone(),
            names: state.names.clone(),
            durable_names: state.durable_names.clone(),
            unsynced_names: state.unsynced_names.clone(),
            rings: state.rings.iter().map(|(name, ring)| (name.clone(), copied(ring))).collect(),
            boot: state.boot,
            ..State::default()
        })))
    }

    /// Lets the last byte of a write be stored wrongly.
    pub fn spoil_write(&self, write: Option<usize>) {
        self.lock().spoilt_write = write;
    }

    /// Returns the number of writes so far.
    pub fn writes(&self) -> usize {
        self.lock().writes
    }

    /// Returns the state for an event.
    fn for_event(&self) -> MutexGuard<'_, State> {
        let watch = self.lock().watch.clone();
        if let Some(watch) = watch {
            watch();
        }
        self.lock()
    }

    /// Returns the event of each sync so far, and what it synced.
    pub fn syncs(&self) -> Vec<(usize, String)> {
        self.lock().syncs.clone()
    }

    /// Turns the machine off before an event.
    pub fn turn_off_at(&self, event: usize) {
        self.lock().off_at = Some(event);
    }

    /// Lets a sync do nothing.
    pub fn skip_sync(&self, sync: Option<usize>) {
        self.lock().skipped_sync = sync;
    }

    /// Lets an event fail.
    pub fn fail_at(&self, event: usize) {
        self.lock().fails_at = Some(event);
    }

    /// Returns the disk as a power failure leaves it, after another start of the machine.
    pub fn after_failure(&self, random: &mut Random) -> Self {
        let state = self.lock();
        let mut names = state.durable_names.clone();
        let kept = random.below(3);
        for naming in &state.unsynced_names {
            if kept == 0 || kept == 2 && random.below(2) == 0 {
                continue;
            }
            apply(&mut names, naming);
        }
        let files = state.files.iter().map(|file| {
            let bytes = file.after_failure(random);
            Contents { durable: bytes.clone(), bytes, unsynced: BTreeMap::new() }
        });
        let files: Vec<_> = files.collect();
        let rings = state.rings.iter().map(|(name, ring)| {
            // Written back in part, or never.
            let memory = Memory::new(ring.0.len() as u64 * 8);
            for (to, from) in memory.0.iter().zip(&ring.0) {
                if random.below(3) > 0 {
                    to.store(from.load(Relaxed), Relaxed);
                }
            }
            (name.clone(), Arc::new(memory))
        });
        Self(Arc::new(Mutex::new(State {
            files,
            durable_names: names.clone(),
            names,
            rings: rings.collect(),
            boot: state.boot + 1,
            ..State::default()
        })))
    }

    /// Returns the disk as a power failure leaves it that nothing survives but what is durable.
    pub fn only_durable(&self) -> Self {
        let state = self.lock();
        let files = state.files.iter().map(|file| {
            let bytes = file.durable.clone();
            Contents { durable: bytes.clone(), bytes, unsynced: BTreeMap::new() }
        });
        Self(Arc::new(Mutex::new(State {
            files: files.collect(),
            durable_names: state.durable_names.clone(),
            names: state.durable_names.clone(),
            boot: state.boot + 1,
            ..State::default()
        })))
    }

    /// Returns the disk as a kill of the process leaves it.
    pub fn after_kill(&self) -> Self {
        let mut state = self.lock();
        (state.off_at, state.fails_at) = (None, None);
        drop(state);
        self.clone()
    }

    /// Changes a byte of a file, durably.
    pub fn damage(&self, name: &str, at: usize, xor: u8) {
        let mut state = self.lock();
        let number = state.names[name];
        let file = &mut state.files[number];
        file.bytes[at] ^= xor;
        file.sync();
    }

    /// Returns the bytes of a file.
    pub fn bytes_of(&self, name: &str) -> Vec<u8> {
        let state = self.lock();
        state.files[state.names[name]].bytes.clone()
    }
}

fn apply(names: &mut BTreeMap<String, usize>, naming: &Naming) {
    match naming {
        Naming::Link(name, file) => _ = names.insert(name.clone(), *file),
        Naming::Rename(from, to) => {
            if let Some(file) = names.remove(from) {
                names.insert(to.clone(), file);
            }
        }
        Naming::Remove(name) => _ = names.remove(name),
    }
}

impl State {
    fn event(&mut self) -> Result<()> {
        if self.off_at.is_some_and(|at| self.events >= at) {
            return Err(off());
        }
        self.events += 1;
        if self.fails_at == Some(self.events - 1) {
            return Err(Error::MediumFull { bytes: 0 });
        }
        Ok(())
    }

    fn name(&mut self, naming: Naming) -> Result<()> {
        self.event()?;
        apply(&mut self.names, &naming);
        self.unsynced_names.push(naming);
        Ok(())
    }

    fn is_skipped(&mut self, file: Option<usize>) -> bool {
        let name = self.names.iter().find(|(_, number)| Some(**number) == file);
        // A file that is not complete may come and go.
        let is_renamed = self.unsynced_names.iter().any(|naming| matches!(naming, Naming::Rename(..)));
        let names = if is_renamed { "names" } else { "no name" };
        self.syncs.push((self.events - 1, name.map_or(names.to_owned(), |(name, _)| name.clone())));
        self.skipped_sync == Some(self.syncs.len() - 1)
    }
}

impl Storage for Disk {
    fn create(&self, name: &str, bytes: u64) -> Result<Arc<dyn StoredFile>> {
        let mut state = self.for_event();
        let file = state.files.len();
        // A truncated file: its old bytes may return after a power failure, which is a file of its own here.
        state.name(Naming::Link(name.to_owned(), file))?;
        let mut contents = Contents::default();
        contents.write(0, &vec![0; bytes as usize]);
        state.files.push(contents);
        Ok(Arc::new(Open(self.clone(), file)))
    }

    fn open(&self, name: &str) -> Result<Option<Arc<dyn StoredFile>>> {
        let state = self.lock();
        let file = state.names.get(name).map(|file| Open(self.clone(), *file));
        Ok(file.map(|file| Arc::new(file) as Arc<dyn StoredFile>))
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.for_event().name(Naming::Rename(from.to_owned(), to.to_owned()))
    }

    fn rename_new(&self, from: &str, to: &str) -> Result<bool> {
        let mut state = self.for_event();
        let is_new = !state.names.contains_key(to);
        if is_new {
            state.name(Naming::Rename(from.to_owned(), to.to_owned()))?;
        }
        Ok(is_new)
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.for_event().name(Naming::Remove(name.to_owned()))
    }

    fn sync(&self) -> Result<()> {
        let mut state = self.for_event();
        state.event()?;
        if !state.is_skipped(None) {
            state.durable_names = state.names.clone();
            state.unsynced_names.clear();
        }
        Ok(())
    }

    fn list(&self) -> Result<Vec<String>> {
        Ok(self.lock().names.keys().cloned().collect())
    }

    fn share(&self, name: &str, bytes: u64) -> Result<Arc<dyn SharedWords>> {
        let mut state = self.lock();
        let is_such = |ring: &Arc<Memory>| ring.0.len() as u64 == bytes / 8;
        match state.rings.get(name).filter(|ring| is_such(ring)) {
            Some(ring) => Ok(Arc::clone(ring) as Arc<dyn SharedWords>),
            None => {
                let ring = Arc::new(Memory::new(bytes));
                state.rings.insert(name.to_owned(), Arc::clone(&ring));
                Ok(ring)
            }
        }
    }

    fn shared(&self, name: &str, bytes: u64) -> Result<Option<Arc<dyn SharedWords>>> {
        let ring = self.lock().rings.get(name).cloned().filter(|ring| ring.0.len() as u64 == bytes / 8);
        Ok(ring.map(|ring| ring as Arc<dyn SharedWords>))
    }

    fn boot(&self) -> Option<u128> {
        Some(self.lock().boot)
    }

    fn describe(&self) -> String {
        "a simulated disk".to_owned()
    }
}

/// An open file of the disk.
struct Open(Disk, usize);

impl StoredFile for Open {
    fn bytes(&self) -> Result<u64> {
        Ok(self.0.lock().files[self.1].bytes.len() as u64)
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Result<usize> {
        let state = self.0.lock();
        let bytes = state.files[self.1].bytes.get(offset as usize..).unwrap_or_default();
        let some = bytes.len().min(into.len());
        into[..some].copy_from_slice(&bytes[..some]);
        Ok(some)
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let mut state = self.0.for_event();
        state.event()?;
        state.writes += 1;
        if state.spoilt_write == Some(state.writes - 1) {
            let spoilt = bytes.split_last().map(|(last, rest)| [rest, &[!last]].concat()).unwrap_or_default();
            state.files[self.1].write(offset as usize, &spoilt);
            return Ok(());
        }
        state.files[self.1].write(offset as usize, bytes);
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        let mut state = self.0.for_event();
        state.event()?;
        if !state.is_skipped(Some(self.1)) {
            state.files[self.1].sync();
        }
        Ok(())
    }

    fn lock(&self) -> Result<()> {
        Ok(())
    }
}
