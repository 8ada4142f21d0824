//! What the tests share: a pool file that goes away, and noise that repeats.
#![allow(dead_code, reason = "each test uses its part")]

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

use bristlecone::{Pool, PoolOptions, Result};

static NEXT: AtomicUsize = AtomicUsize::new(0);

pub struct Scratch(pub PathBuf);

impl Scratch {
    pub fn new() -> Self {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = PathBuf::from(format!("/dev/shm/bristlecone-test-{}-{number}.pool", std::process::id()));
        let _ = std::fs::remove_file(&path);
        Self(path)
    }

    pub fn options(&self) -> PoolOptions {
        Pool::options().max_bytes(256 << 20).create(true)
    }

    pub fn open(&self) -> Pool {
        self.try_open().unwrap()
    }

    pub fn try_open(&self) -> Result<Pool> {
        self.options().open(&self.0)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// xorshift64.
pub struct Noise(pub u64);

impl Noise {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}
