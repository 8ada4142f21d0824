//! A file that gets its name once it is complete. A process that dies before leaves no file in the
//! way of the next one, and an opener never sees a partial pool.

use std::fs::{File, OpenOptions};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use rustix::fs::{AtFlags, CWD, RenameFlags, linkat, renameat_with};
use rustix::io::Errno;

use crate::{Error, Result, failpoint};

/// A new file without its name: see the module. If dropped before it has one, it is deleted.
#[derive(Debug)]
pub(super) struct NewFile<'p> {
    path: &'p Path,
    directory: &'p Path,
    /// Its temporary name, where the file system does not support unnamed files.
    temporary: Option<PathBuf>,
}

impl<'p> NewFile<'p> {
    /// Creates a file that only its owner may read and write, to be named `path`.
    pub fn make(path: &'p Path) -> Result<(File, Self)> {
        if path.symlink_metadata().is_ok() {
            return Err(Error::Exists { path: path.to_owned() });
        }
        Self::make_again(path)
    }

    /// Creates a file like [`make`](Self::make), to take the place of the one at `path`.
    pub fn make_again(path: &'p Path) -> Result<(File, Self)> {
        let directory = directory_of(path);
        let options = OpenOptions::new().read(true).write(true).mode(0o600).clone();
        let nameless = failpoint::check("openat").map_err(std::io::Error::from).and_then(|()| {
            // The file is named through /proc.
            std::fs::metadata("/proc/self/fd")?;
            options.clone().custom_flags(libc::O_TMPFILE).open(directory)
        });
        if let Ok(file) = nameless {
            return Ok((file, Self { path, directory, temporary: None }));
        }
        let temporary = directory.join(temporary_name(path));
        let made = failpoint::check("openat").map_err(std::io::Error::from);
        let made = made.and_then(|()| options.clone().create_new(true).open(&temporary));
        let file = made.map_err(|error| Error::at_path(path, error))?;
        Ok((file, Self { path, directory, temporary: Some(temporary) }))
    }

    /// Gives the file its name, durably. An existing file of that name stays.
    pub fn publish(self, file: &File) -> Result<()> {
        let named =
            failpoint::check("linkat").and_then(|()| match &self.temporary {
                None => {
                    let own = format!("/proc/self/fd/{}", file.as_raw_fd());
                    linkat(CWD, own, CWD, self.path, AtFlags::SYMLINK_FOLLOW)
                }
                Some(temporary) => renameat_with(CWD, temporary, CWD, self.path, RenameFlags::NOREPLACE)
                    .or_else(|error| match error {
                        Errno::EXIST => Err(error),
                        // A file system without such a rename: dropping `self` removes the
                        // temporary name.
                        _ => linkat(CWD, temporary, CWD, self.path, AtFlags::empty()),
                    }),
            });
        named.map_err(|error| Error::at_path(self.path, error.into()))?;
        sync_directory(self.directory).inspect_err(|_| {
            // Remove a name that may not be durable.
            let _ = std::fs::remove_file(self.path);
        })?;
        Ok(())
    }

    /// Gives the file the name of another one, durably. That one loses it.
    pub fn replace(mut self, file: &File) -> Result<()> {
        let temporary = match self.temporary.take() {
            Some(temporary) => temporary,
            None => {
                let temporary = self.directory.join(temporary_name(self.path));
                let own = format!("/proc/self/fd/{}", file.as_raw_fd());
                failpoint::check("linkat")
                    .and_then(|()| linkat(CWD, own, CWD, &temporary, AtFlags::SYMLINK_FOLLOW))
                    .map_err(|error| Error::at_path(self.path, error.into()))?;
                temporary
            }
        };
        let renamed = failpoint::call("renameat", || rustix::fs::rename(&temporary, self.path));
        if let Err(error) = renamed {
            self.temporary = Some(temporary);
            return Err(Error::at_path(self.path, error.into()));
        }
        sync_directory(self.directory)
    }
}

/// Makes the name of a file durable.
pub(crate) fn sync_name(path: &Path) -> Result<()> {
    sync_directory(directory_of(path))
}

fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Makes the names of a directory durable.
pub(crate) fn sync_directory(path: &Path) -> Result<()> {
    let synced = File::open(path).and_then(|directory| {
        match failpoint::call("fsync", || rustix::fs::fsync(directory.as_fd())) {
            // Directories of some file systems do not support sync, and do not need it.
            Ok(()) | Err(Errno::INVAL) => Ok(()),
            Err(error) => Err(error.into()),
        }
    });
    synced.map_err(|error| Error::io(format!("syncing {}", path.display()), error))
}

impl Drop for NewFile<'_> {
    fn drop(&mut self) {
        if let Some(temporary) = &self.temporary {
            // If it cannot be removed it does no harm.
            let _ = std::fs::remove_file(temporary);
        }
    }
}

/// Returns a name beside `path` that is unique on this machine.
fn temporary_name(path: &Path) -> std::ffi::OsString {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!(".{}-{}.new", std::process::id(), NEXT.fetch_add(1, Relaxed)));
    name
}
