//! Pools on a device in device-DAX mode. A file of a fixed size stands for it, on which every call fails that such a device
//! does not support: only mappings work.

use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt};

use bristlecone::{Design, Domain, Error, KeepIndex, Pool, PoolOptions, Result};
use bristlecone_pm::failpoint::{self, Device};

use crate::common::{Noise, Scratch};

const BYTES: u64 = 64 << 20;

/// A file that stands for a device, until it is dropped.
struct Pretended {
    scratch: Scratch,
    file: File,
}

impl Pretended {
    fn new(bytes: u64, align: u64) -> Self {
        let scratch = Scratch::new();
        let file = File::options().read(true).write(true).create_new(true).open(&scratch.0).unwrap();
        file.set_len(bytes).unwrap();
        let pretended = Self { scratch, file };
        pretended.is(Device { bytes, align, is_persistent: true });
        pretended
    }

    fn is(&self, device: Device) {
        failpoint::pretend_device(Some((self.file.metadata().unwrap().ino(), device)));
    }

    fn open(&self, options: &PoolOptions) -> Result<Pool> {
        let opened = options.open(&self.scratch.0);
        assert_eq!(failpoint::refused(), None, "a call that a device does not have");
        opened
    }

    fn refused(&self, options: &PoolOptions) -> String {
        self.open(options).expect_err("it must be refused").to_string()
    }
}

impl Drop for Pretended {
    fn drop(&mut self) {
        failpoint::pretend_device(None);
    }
}

/// Options of a pool on a device. The index is memory of the process: its file would be refused the same calls.
fn options() -> PoolOptions {
    Pool::options().create(true).keep_index(KeepIndex::Never)
}

#[test]
fn a_device_holds_a_pool_of_every_design() {
    let _alone = crate::alone();
    for design in Design::ALL.iter().copied() {
        for align in [4096, 2 << 20] {
            let device = Pretended::new(BYTES, align);
            let pool = device.open(&options()).unwrap();
            let info = pool.info();
            assert_eq!((info.max_bytes, info.file_bytes), (BYTES, BYTES), "all of the device");
            assert_eq!(info.path.as_ref(), Some(&device.scratch.0));
            assert!(matches!(info.detected, Domain::Adr | Domain::Eadr), "{:?}", info.detected);
            let tree = pool.tree_options("t").design(design).create::<&str, u64>().unwrap();
            let mut noise = Noise(5);
            (0..3000).for_each(|key| tree.upsert(&format!("key {key}"), noise.next()).unwrap());
            drop(tree);
            pool.simulate_crash();
            for when in ["after a crash", "after a close"] {
                let pool = device.open(&options().create(false)).unwrap();
                let tree = pool.tree::<&str, u64>("t").unwrap();
                assert_eq!((tree.len().unwrap(), tree.check()), (3000, Vec::new()), "{design} {when}");
                let mut noise = Noise(5);
                for key in 0..3000 {
                    assert_eq!(
                        tree.get(&format!("key {key}")).unwrap(),
                        Some(noise.next()),
                        "{design} {when}"
                    );
                }
                drop(tree);
                assert_eq!(pool.check(), []);
                pool.close().unwrap();
            }
            let refused = device.refused(&options().create_new(true));
            assert!(refused.contains("exists already"), "{refused}");
        }
    }
}

#[test]
fn a_full_device_is_a_full_pool() {
    let _alone = crate::alone();
    let device = Pretended::new(8 << 20, 2 << 20);
    let pool = device.open(&options()).unwrap();
    let tree = pool.tree::<u64, u64>("t").unwrap();
    let fill = || (0..).find_map(|key| tree.insert(key, !key).err().map(|error| (key, error))).unwrap();
    let (items, error) = fill();
    assert!(error.is_no_room() && items > 100_000, "{error}, {items} items");
    assert_eq!(tree.len().unwrap(), items);
    tree.retain(|_, _| false).unwrap();
    // A device has no space to release.
    assert_eq!(pool.trim().unwrap(), 0);
    let items = fill().0;
    assert!(items > 100_000, "{items} items again");
    drop(tree);
    pool.sync().unwrap();
    pool.close().unwrap();
    assert_eq!(failpoint::refused(), None);
    let pool = device.open(&options()).unwrap();
    assert_eq!(pool.tree::<u64, u64>("t").unwrap().len().unwrap(), items);
}

#[test]
fn a_device_that_cannot_hold_the_pool_is_refused() {
    let _alone = crate::alone();
    for (bytes, align, options, expected) in [
        (1 << 20, 4096, options(), "has 1048576 bytes, and may not grow"),
        (BYTES, 4096, options().max_bytes(BYTES), "has 67108864 bytes, and may not grow"),
        (BYTES, 1 << 30, options(), "an alignment of 1073741824 bytes"),
        (BYTES, 2 << 20, options().chunk_bytes(4096).max_bytes(10 << 20), "multiples of 2097152 bytes"),
        (BYTES, 4096, options().domain(Domain::Msync), "cannot have the domain msync"),
        (BYTES, 4096, options().domain(Domain::Journal), "has no journal"),
        (BYTES, 4096, Pool::options().read_only(true), "can be opened for writing only"),
        (BYTES, 4096, Pool::options(), "is not a Bristlecone pool"),
    ] {
        let device = Pretended::new(bytes, align);
        let refused = device.refused(&options);
        assert!(refused.contains(expected), "{refused}");
        // Nothing was written.
        let mut found = vec![0; bytes as usize];
        device.file.read_exact_at(&mut found, 0).unwrap();
        assert!(found.iter().all(|byte| *byte == 0), "{expected}");
    }
    // Other bytes are left alone, wherever they are.
    for offset in [0, 100, 1 << 20, BYTES - 1] {
        let device = Pretended::new(BYTES, 4096);
        device.file.write_all_at(b"x", offset).unwrap();
        let refused = device.refused(&options());
        assert!(refused.contains("is not a Bristlecone pool"), "{offset}: {refused}");
    }
}

#[test]
fn a_device_of_another_size_loses_nothing() {
    let _alone = crate::alone();
    let device = Pretended::new(BYTES, 4096);
    let pool = device.open(&options()).unwrap();
    let tree = pool.tree::<u64, u64>("t").unwrap();
    (0..1_000_000).for_each(|key| tree.upsert(key, !key).unwrap());
    drop(tree);
    assert!(matches!(device.open(&options()), Err(Error::InUse { .. })));
    pool.close().unwrap();
    device.is(Device { bytes: 8 << 20, align: 4096, is_persistent: true });
    let refused = device.refused(&options());
    assert!(refused.contains("truncated"), "{refused}");
    for bytes in [BYTES, 2 * BYTES] {
        device.file.set_len(bytes).unwrap();
        device.is(Device { bytes, align: 4096, is_persistent: true });
        let pool = device.open(&options()).unwrap();
        let tree = pool.tree::<u64, u64>("t").unwrap();
        assert_eq!((tree.len().unwrap(), tree.check()), (1_000_000, Vec::new()));
        assert_eq!(pool.info().max_bytes, BYTES, "its maximum is the one that it was created with");
    }
}

#[test]
fn memory_that_a_power_failure_empties_has_the_domain_process() {
    let _alone = crate::alone();
    let device = Pretended::new(BYTES, 4096);
    device.is(Device { bytes: BYTES, align: 4096, is_persistent: false });
    assert_eq!(device.open(&options()).unwrap().info().domain, Domain::Process);
    // Another way to the same device: a descriptor.
    let pool = options().open_fd(device.file.as_fd(), None).unwrap();
    assert_eq!((pool.info().path, pool.info().file_bytes), (None, BYTES));
}

#[test]
fn the_system_forbids_a_device() {
    let _alone = crate::alone();
    // Without a device of this kind, those that exist are none, and those that do not are not found.
    for path in ["/dev/null", "/dev/zero"] {
        assert!(matches!(Pool::options().create(true).open(path), Err(Error::NotAPool { .. })), "{path}");
    }
    assert!(matches!(Pool::open("/dev/dax99.9"), Err(Error::NotFound { .. })));
}
