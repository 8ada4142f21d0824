//! Values as bytes, and errors of this crate as those of openraft.

use bristlecone::{Error, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Encodes a value for storage.
pub fn encode<T: Serialize>(value: &T) -> Result<Vec<u8>> {
    postcard::to_allocvec(value)
        .map_err(|error| Error::invalid(format!("a value cannot be encoded: {error}")))
}

/// Decodes a stored value; `place` names it in the error.
pub fn decode<T: DeserializeOwned>(bytes: &[u8], place: impl Into<String>) -> Result<T> {
    postcard::from_bytes(bytes).map_err(|error| Error::corrupted(error.to_string(), place))
}

/// Runs work that may wait for the disk, without blocking the runtime.
pub async fn blocking<R: Send + 'static>(work: impl FnOnce() -> Result<R> + Send + 'static) -> Result<R> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => Err(Error::io("running a task of the store", std::io::Error::other(error))),
    }
}
