//! A service that keeps its pool over `systemctl restart` and `kill -9`, without a file: pool and index are memfds, which
//! systemd holds in the file-descriptor store of the unit. Nothing of it is in `/dev/shm`.
//!
//! ```text
//! systemd-run --user --pipe --property=FileDescriptorStoreMax=2 --property=NotifyAccess=main \
//!     --property=FileDescriptorStorePreserve=yes target/release/examples/descriptor_store
//! ```
//!
//! It reads lines `put KEY VALUE` and `get KEY` from its input. Without systemd it works as well, and loses the pool when
//! it ends.

use std::error::Error;
use std::io::{self, BufRead, IoSlice, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use bristlecone::{KeepIndex, Pool, Tree};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

/// Number of the first descriptor that systemd passes.
const FIRST: i32 = 3;

/// Sends a message to systemd, with a descriptor to be stored. Does nothing without systemd.
pub fn notify(message: &str, descriptor: Option<BorrowedFd<'_>>) -> io::Result<()> {
    let Some(path) = std::env::var_os("NOTIFY_SOCKET") else { return Ok(()) };
    let path = path.into_string().map_err(|_| io::Error::other("NOTIFY_SOCKET is not a path"))?;
    let address = match path.strip_prefix('@') {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(&path)?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.connect_addr(&address)?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let descriptors = descriptor.as_slice();
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::Error::other("no space for a descriptor"));
    }
    sendmsg(&socket, &[IoSlice::new(message.as_bytes())], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Takes the descriptors that systemd has stored, with their names. They are closed when another program is executed.
pub fn stored() -> io::Result<Vec<(String, OwnedFd)>> {
    let variable = |name| std::env::var(name).unwrap_or_default();
    if variable("LISTEN_PID") != std::process::id().to_string() {
        return Ok(Vec::new());
    }
    let count: i32 =
        variable("LISTEN_FDS").parse().map_err(|_| io::Error::other("LISTEN_FDS is not a number"))?;
    let names = variable("LISTEN_FDNAMES");
    let names = names.split(':').map(str::to_owned).chain(std::iter::repeat(String::new()));
    let take = |(number, name)| {
        // SAFETY: systemd passes this descriptor to this process alone, which takes it here once, at its start.
        let descriptor = unsafe { OwnedFd::from_raw_fd(number) };
        rustix::io::fcntl_setfd(&descriptor, rustix::io::FdFlags::CLOEXEC)?;
        Ok((name, descriptor))
    };
    (FIRST..FIRST + count).zip(names).map(take).collect()
}

/// Waits until systemd has processed the earlier messages: the descriptors in them survive this process then.
fn wait_until_stored() -> io::Result<()> {
    let (reader, writer) = io::pipe()?;
    notify("BARRIER=1", Some(writer.as_fd()))?;
    drop(writer);
    let timeout = rustix::event::Timespec { tv_sec: 5, tv_nsec: 0 };
    let mut closed = [PollFd::new(&reader, PollFlags::empty())];
    match poll(&mut closed, Some(&timeout))? {
        0 => Err(io::Error::new(io::ErrorKind::TimedOut, "systemd does not answer")),
        _ => Ok(()),
    }
}

/// The files of the service: those that systemd kept, or new ones, which it is to keep.
pub struct Files {
    pool: OwnedFd,
    index: OwnedFd,
}

impl Files {
    /// Takes both files, and creates those that are missing. A pool whose index is missing gets a new one.
    pub fn take() -> io::Result<Self> {
        let mut stored = stored()?;
        let mut take = |name: &str| match stored.iter().position(|(stored, _)| stored == name) {
            Some(at) => Ok((stored.swap_remove(at).1, true)),
            None => memfd_create(name, MemfdFlags::CLOEXEC).map(|file| (file, false)),
        };
        let ((pool, has_pool), (index, has_index)) = (take("pool")?, take("index")?);
        let files = Self { pool, index };
        if !(has_pool && has_index) {
            files.store()?;
        }
        Ok(files)
    }

    /// Has systemd store both files, in the place of those that it has of these names.
    pub fn store(&self) -> io::Result<()> {
        for (name, file) in [("pool", &self.pool), ("index", &self.index)] {
            notify(&format!("FDSTOREREMOVE=1\nFDNAME={name}"), None)?;
            notify(&format!("FDSTORE=1\nFDNAME={name}"), Some(file.as_fd()))?;
        }
        wait_until_stored()
    }

    /// Opens the pool, or creates it.
    pub fn open(&self) -> bristlecone::Result<Pool> {
        let options = Pool::options().create(true).keep_index(KeepIndex::AfterKill);
        options.open_fd(self.pool.as_fd(), Some(self.index.as_fd()))
    }
}

/// Answers the lines of `input` until it ends, and then closes the pool.
pub fn serve(input: impl BufRead, mut output: impl Write) -> Result<(), Box<dyn Error>> {
    let files = Files::take()?;
    let pool = files.open()?;
    let tree: Tree<&str, u64> = pool.tree("items")?;
    notify("READY=1", None)?;
    writeln!(output, "{} items, index kept: {}", tree.len()?, pool.info().index_was_kept)?;
    for line in input.lines() {
        let line = line?;
        let answer = match line.split_whitespace().collect::<Vec<_>>()[..] {
            ["put", key, value] => {
                tree.upsert(key, value.parse()?)?;
                "done".to_owned()
            }
            ["get", key] => tree.get(key)?.map_or("absent".to_owned(), |value| value.to_string()),
            ["store"] => files.store().map_or_else(|error| error.to_string(), |()| "stored".to_owned()),
            _ => "expected: put KEY VALUE, get KEY, or store".to_owned(),
        };
        writeln!(output, "{answer}")?;
    }
    drop(tree);
    pool.close()?;
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    serve(io::stdin().lock(), io::stdout())
}
