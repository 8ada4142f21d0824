//! What is known of a device in device-DAX mode.

/// A device in device-DAX mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Device {
    /// Size in bytes.
    pub bytes: u64,
    /// Alignment of mappings in bytes.
    pub align: u64,
    /// Whether its contents survive a power failure: an NVDIMM or persistent CXL memory.
    pub is_persistent: bool,
}
