//! The file of a snapshot, as openraft streams it.

use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::task::{Context, Poll};

use bristlecone::{Error, Result};
use tokio::io::{AsyncRead, AsyncSeek, AsyncWrite, ReadBuf};

/// A snapshot of a state machine, or one that is being received: openraft's `SnapshotData`.
///
/// The file is a pool. Dropping a received file that was not installed removes it.
#[derive(Debug)]
pub struct SnapshotFile {
    file: tokio::fs::File,
    path: PathBuf,
    is_received: bool,
}

impl SnapshotFile {
    /// Creates a file that is to be received.
    pub(crate) fn receive(path: PathBuf) -> Result<Self> {
        let created = File::options().read(true).write(true).create_new(true).open(&path);
        let file = created.map_err(|error| Error::io(format!("creating {}", path.display()), error))?;
        Ok(Self { file: file.into(), path, is_received: true })
    }

    /// Opens the file of a snapshot for reading.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let opened = File::open(path);
        let file = opened.map_err(|error| Error::io(format!("opening {}", path.display()), error))?;
        Ok(Self { file: file.into(), path: path.to_owned(), is_received: false })
    }

    /// Moves a received file to a path, or copies another one; its bytes are then on disk.
    pub(crate) async fn store(mut self, path: PathBuf) -> Result<()> {
        let doing = format!("storing a snapshot in {}", path.display());
        let stored = async {
            // Also waits for writes in progress.
            let mut file = self.file.try_clone().await?.into_std().await;
            let moved = self.is_received.then(|| self.path.clone());
            tokio::task::spawn_blocking(move || match moved {
                Some(from) => file.sync_all().and_then(|()| std::fs::rename(from, path)),
                None => copy(&mut file, &path),
            })
            .await?
        };
        let stored: io::Result<()> = stored.await;
        self.is_received &= stored.is_err();
        stored.map_err(|error| Error::io(doing, error))
    }
}

fn copy(from: &mut File, path: &Path) -> io::Result<()> {
    let mut to = File::create_new(path)?;
    from.seek(SeekFrom::Start(0))?;
    io::copy(from, &mut to)?;
    to.sync_all()
}

impl Drop for SnapshotFile {
    fn drop(&mut self) {
        if self.is_received {
            // A file that stays is removed when the store is opened.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

impl AsyncRead for SnapshotFile {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        to: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.file).poll_read(context, to)
    }
}

impl AsyncWrite for SnapshotFile {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.file).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.file).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.file).poll_shutdown(context)
    }
}

impl AsyncSeek for SnapshotFile {
    fn start_seek(mut self: Pin<&mut Self>, position: SeekFrom) -> io::Result<()> {
        Pin::new(&mut self.file).start_seek(position)
    }

    fn poll_complete(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<u64>> {
        Pin::new(&mut self.file).poll_complete(context)
    }
}
