//! Pools on the media of this crate. Every design is compiled for the simulator here, once.

use std::sync::Arc;

use bristlecone::Pool;
use bristlecone::lab::{AnyMedium, pool_on_any};
use bristlecone_pm::{Domain, Geometry, PoolFile, Region, Result};

use bristlecone_device::Device;
use bristlecone_sim::Sim;

/// Makes a pool of a simulated pool file.
///
/// # Errors
///
/// As `Pool::open`, of what was committed and cannot be carried out.
pub fn sim_pool(file: Arc<PoolFile<Sim>>, recovery_threads: usize) -> Result<Pool> {
    Pool::on(file, recovery_threads)
}

/// Creates a pool on a device.
///
/// # Errors
///
/// As [`PoolFile::create_in`].
pub fn device_pool(device: &Device, region: Region, geometry: Geometry, domain: Domain) -> Result<Pool> {
    let medium: AnyMedium = Box::new(device.clone());
    pool_on_any(PoolFile::create_in(region, geometry, domain, medium)?)
}
