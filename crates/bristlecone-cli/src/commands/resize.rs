//! `bristlecone resize`: raises the maximum size of a pool in place.

use bristlecone::PoolInfo;
use bristlecone_cli::failure::{Failure, Outcome};
use bristlecone_cli::output::Output;
use bristlecone_cli::size;
use clap::Args;
use serde_json::json;

use crate::open::{PoolArgs, explain, with_domain};

/// Raise the maximum size of a pool, in place
///
/// The maximum can be raised immediately, independent of the contents, up to the limit of the header: about 490 GiB
/// for a pool created with less, about 1.4 TiB for one created with the default. `bristlecone copy` has no such limit,
/// and can also make a pool smaller.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  bristlecone resize trees.pool --max-bytes 128G
  bristlecone copy trees.pool small.pool --max-bytes 1G")]
pub struct Resize {
    #[command(flatten)]
    pool: PoolArgs,
    /// Maximum pool size, for example 64G.
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    max_bytes: u64,
}

impl Resize {
    pub fn run(&self, output: &mut Output) -> Outcome {
        let path = &self.pool.pool.path;
        // Nothing is changed before it is known to be possible.
        let reader = self.pool.pool.open(&bristlecone::Pool::options().read_only(true))?;
        let PoolInfo { max_bytes: before, chunk_bytes, .. } = reader.info();
        reader.close()?;
        if before > self.max_bytes.saturating_add(super::create::headers_max(self.max_bytes, chunk_bytes)) {
            let max = size::show(before);
            return Err(Failure::usage(format!(
                "the maximum of {} is {max} and cannot be reduced in place: use `bristlecone copy`",
                path.display()
            )));
        }
        let options = with_domain(self.pool.domain.domain).max_bytes(self.max_bytes);
        let pool = options.open(path).map_err(|error| explain(path, error))?;
        let max_bytes = pool.info().max_bytes;
        pool.close()?;
        let said = format!("{}: a pool of up to {}", path.display(), size::show(max_bytes));
        output.either(&json!({ "pool": path, "max_bytes": max_bytes, "max_bytes_before": before }), said)
    }
}
