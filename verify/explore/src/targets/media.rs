//! Pools on the media of this crate. Designs are not compiled for either: the library's code for media that are chosen
//! at run time serves both.

use bristlecone::Pool;
use bristlecone::lab::{AnyMedium, pool_on_any};
use bristlecone_pm::{Domain, Geometry, Medium, PoolFile, Region, Result};

use bristlecone_device::Device;
use bristlecone_sim::Sim;

/// Returns the simulator as a medium that is chosen at run time.
pub fn any_medium(sim: &Sim) -> AnyMedium {
    Box::new(sim.clone())
}

/// Creates a pool on a device.
///
/// # Errors
///
/// As [`PoolFile::create_in`].
pub fn device_pool(device: &Device, region: Region, geometry: Geometry, domain: Domain) -> Result<Pool> {
    medium_pool(device.clone(), region, geometry, domain)
}

/// Creates a pool on a medium.
///
/// # Errors
///
/// As [`PoolFile::create_in`].
pub fn medium_pool(medium: impl Medium, region: Region, geometry: Geometry, domain: Domain) -> Result<Pool> {
    let medium: AnyMedium = Box::new(medium);
    pool_on_any(PoolFile::create_in(region, geometry, domain, medium)?)
}
