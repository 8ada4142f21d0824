//! `bristlecone resize`: raises the maximum size of a pool, and releases unused space.

use bristlecone::{Pool, PoolInfo};
use bristlecone_cli::failure::{Failure, Outcome};
use bristlecone_cli::output::Output;
use bristlecone_cli::size;
use clap::Args;
use serde_json::json;

use crate::open::PoolArgs;

/// Raise the maximum size of a pool in place, or release unused space to the file system
///
/// The maximum can be raised immediately, independent of the contents, up to the limit of the header: about 490 GiB
/// for a pool created with less, about 1.4 TiB for one created with the default. A pool keeps up to 64 MiB of freed
/// space for later use, and releases more than that when it is closed; --trim releases all of it. `bristlecone copy`
/// makes a pool smaller or larger without these limits, and compacts trees whose leaves are half empty.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  bristlecone resize trees.pool --max-bytes 128G
  bristlecone resize trees.pool --trim
  bristlecone copy trees.pool small.pool --max-bytes 1G")]
#[group(id = "change", required = true, multiple = true, args = ["max_bytes", "trim"])]
pub struct Resize {
    #[command(flatten)]
    pool: PoolArgs,
    /// New maximum size, for example 128G.
    #[arg(long, visible_alias = "size", value_name = "SIZE", value_parser = size::parse)]
    max_bytes: Option<u64>,
    /// Release unused space to the file system.
    #[arg(long)]
    trim: bool,
}

impl Resize {
    pub fn run(&self, output: &mut Output) -> Outcome {
        let path = &self.pool.pool.path;
        let before = self.max_bytes.map(|bytes| self.may_become(bytes)).transpose()?;
        let pool = self.pool.open_with(|options| match self.max_bytes {
            Some(bytes) => options.max_bytes(bytes),
            None => options,
        })?;
        let released = self.trim.then(|| pool.trim()).transpose()?;
        let PoolInfo { max_bytes, file_bytes, .. } = pool.info();
        pool.close()?;
        if output.json() {
            let before = before.unwrap_or(max_bytes);
            let mut object = json!({ "pool": path, "max_bytes": max_bytes, "max_bytes_before": before });
            if let Some(released) = released {
                object["given_back_bytes"] = released.into();
                object["file_bytes"] = file_bytes.into();
            }
            return output.value(&object);
        }
        if before.is_some() {
            output.line(format_args!("{}: a pool of up to {}", path.display(), size::show(max_bytes)))?;
        }
        released.map_or(Ok(()), |released| {
            let (released, file) = (size::show(released), size::show(file_bytes));
            output.line(format_args!("{released} released; the file has {file}"))
        })
    }

    /// Returns the present maximum. Fails, before anything is changed, if it is larger than the new one.
    fn may_become(&self, bytes: u64) -> Outcome<u64> {
        let reader = self.pool.pool.open(&Pool::options().read_only(true))?;
        let PoolInfo { max_bytes, chunk_bytes, .. } = reader.info();
        reader.close()?;
        // The headers of a pool created with this maximum: a descriptor of 8 B for each chunk, and the rest.
        let headers = (4 << 20) + bytes / chunk_bytes * 8;
        if max_bytes > bytes.saturating_add(headers) {
            return Err(Failure::usage(format!(
                "the maximum of {} is {} and cannot be reduced in place: use `bristlecone copy`",
                self.pool.pool.path.display(),
                size::show(max_bytes)
            )));
        }
        Ok(max_bytes)
    }
}
