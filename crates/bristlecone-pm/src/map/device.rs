//! Device-DAX: character devices such as `/dev/dax0.0`, whose memory is mapped without a file system. Such a device has a
//! fixed size and an alignment of mappings. It cannot be read, truncated, synced or mapped privately, and has no holes.

use std::fs::{File, Metadata};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{major, minor};
use rustix::mm::{MapFlags, ProtFlags};

use super::HUGE_BYTES;
use crate::dax_device::Device;
use crate::{Error, PAGE_BYTES, Result, failpoint};

impl Device {
    /// Returns whether a file may be such a device.
    pub(crate) fn is_possible(metadata: &Metadata) -> bool {
        metadata.file_type().is_char_device() || failpoint::device(metadata.ino()).is_some()
    }

    /// Returns the device that a file is; `None` if it is something else.
    pub(crate) fn of(file: &File) -> Result<Option<Self>> {
        let metadata = file.metadata().map_err(|error| Error::io("reading the kind of a file", error))?;
        if let Some(pretended) = failpoint::device(metadata.ino()) {
            return pretended.checked().map(Some);
        }
        if !metadata.file_type().is_char_device() {
            return Ok(None);
        }
        let (major, minor) = (major(metadata.rdev()), minor(metadata.rdev()));
        let folder = PathBuf::from(format!("/sys/dev/char/{major}:{minor}"));
        Self::described_in(&folder)?.map(Self::checked).transpose()
    }

    /// Returns the device that a folder of sysfs describes; `None` if it is of another kind.
    fn described_in(folder: &Path) -> Result<Option<Self>> {
        let subsystem = std::fs::read_link(folder.join("subsystem"));
        if !subsystem.is_ok_and(|target| target.file_name().is_some_and(|name| name == "dax")) {
            return Ok(None);
        }
        let number = |name: &str| {
            let path = folder.join(name);
            let text = std::fs::read_to_string(&path);
            let number = text.and_then(|text| text.trim().parse().map_err(std::io::Error::other));
            number.map_err(|error| Error::io(format!("reading {}", path.display()), error))
        };
        // Kernels before 5.10 do not tell it. It is that of a huge page unless it was configured.
        let align = if folder.join("align").exists() { number("align")? } else { HUGE_BYTES };
        let place = std::fs::canonicalize(folder).unwrap_or_default();
        let is_persistent = place.iter().any(|part| part.to_string_lossy().starts_with("ndbus"));
        Ok(Some(Self { bytes: number("size")?, align, is_persistent }))
    }

    fn checked(self) -> Result<Self> {
        let Self { align, bytes, .. } = self;
        let is_possible = align.is_power_of_two() && (PAGE_BYTES as u64..=HUGE_BYTES).contains(&align);
        if !is_possible {
            let what =
                format!("a DAX device with an alignment of {align} bytes: 4 KiB to 2 MiB are possible");
            return Err(Error::invalid(what));
        }
        Ok(Self { bytes: bytes / align * align, ..self })
    }

    /// Copies bytes of the device.
    pub(crate) fn read(&self, file: &File, offset: u64, buffer: &mut [u8]) -> std::io::Result<()> {
        self.map(file, offset, buffer.len(), ProtFlags::READ, |bytes| {
            // SAFETY: as many bytes as the buffer has are mapped there. Their owner is locked, or writes words.
            unsafe { std::ptr::copy_nonoverlapping(bytes, buffer.as_mut_ptr(), buffer.len()) }
        })
    }

    /// Writes zeros to the device.
    pub(crate) fn zero(&self, file: &File, offset: u64, bytes: usize) -> std::io::Result<()> {
        self.map(file, offset, bytes, ProtFlags::READ | ProtFlags::WRITE, |start| {
            // SAFETY: this many bytes are mapped there for writing, of a device that is locked.
            unsafe { start.write_bytes(0, bytes) }
        })
    }

    /// Calls `act` with the address of a range of the device, which is mapped meanwhile.
    fn map(
        &self,
        file: &File,
        offset: u64,
        bytes: usize,
        prot: ProtFlags,
        act: impl FnOnce(*mut u8),
    ) -> std::io::Result<()> {
        let end = offset + bytes as u64;
        if end > self.bytes {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        let start = offset / self.align * self.align;
        let len = (end.next_multiple_of(self.align) - start) as usize;
        // The device demands an aligned address, too.
        let ((whole, reserved), base) = super::address_space(len)?;
        failpoint::check("mmap")?;
        let flags = MapFlags::SHARED | MapFlags::FIXED;
        // SAFETY: replaces a part of the reservation above, which no other code uses.
        let mapped = unsafe { rustix::mm::mmap(base.cast(), len, prot, flags, file, start) };
        if mapped.is_ok() {
            act(base.wrapping_add((offset - start) as usize));
        }
        // SAFETY: the whole reservation, to which no reference is left.
        let unmapped = unsafe { rustix::mm::munmap(whole.cast(), reserved) };
        mapped.and(unmapped).map_err(Into::into)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// A folder as sysfs has it.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str, subsystem: &str, files: &[(&str, &str)]) -> Self {
            let path = std::env::temp_dir().join(format!("bristlecone-{}-{name}", std::process::id()));
            std::fs::create_dir_all(&path).unwrap();
            symlink(format!("../../bus/{subsystem}"), path.join("subsystem")).unwrap();
            files.iter().for_each(|(name, text)| std::fs::write(path.join(name), text).unwrap());
            Self(path)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_device_is_described_by_sysfs() {
        let found = |name: &str, subsystem: &str, files: &[(&str, &str)]| {
            Device::described_in(&Folder::new(name, subsystem, files).0)
        };
        let device = found("dax", "dax", &[("size", "8388608\n"), ("align", "4096\n")]).unwrap();
        assert_eq!(device, Some(Device { bytes: 8 << 20, align: 4096, is_persistent: false }));
        let device = found("old", "dax", &[("size", "8388608\n")]).unwrap().unwrap();
        assert_eq!(device.align, HUGE_BYTES);
        assert_eq!(found("other", "tty", &[("size", "1\n")]).unwrap(), None);
        assert_eq!(Device::described_in(Path::new("/nowhere")).unwrap(), None);
        for files in [&[("align", "4096\n")][..], &[("size", "much\n")]] {
            let error = found("damaged", "dax", files).unwrap_err();
            assert!(error.to_string().contains("/size"), "{error}");
        }
        let persistent = Folder::new("ndbus0", "dax", &[("size", "1\n")]);
        let region = persistent.0.join("ndbus0");
        std::fs::create_dir(&region).unwrap();
        symlink("../../bus/dax", region.join("subsystem")).unwrap();
        std::fs::write(region.join("size"), "8388608").unwrap();
        assert!(Device::described_in(&region).unwrap().unwrap().is_persistent);
    }

    #[test]
    fn a_wrong_alignment_is_refused() {
        for align in [0, 512, 4097, 1 << 30] {
            let device = Device { bytes: 1 << 30, align, is_persistent: true };
            assert!(device.checked().unwrap_err().to_string().contains("alignment"), "{align}");
        }
        let device = Device { bytes: (8 << 20) + 4096, align: 2 << 20, is_persistent: true };
        assert_eq!(device.checked().unwrap().bytes, 8 << 20);
    }

    #[test]
    fn other_character_devices_are_no_dax() {
        for path in ["/dev/null", "/dev/zero"] {
            assert_eq!(Device::of(&File::open(path).unwrap()).unwrap(), None);
        }
        assert_eq!(Device::of(&File::open("/proc/self/maps").unwrap()).unwrap(), None);
    }
}
