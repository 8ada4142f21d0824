//! What `derive(Key)` refers to. Not for anything else: it may change with any version.

pub use crate::api::kinds::composed::tuple_kind;
pub use crate::api::kinds::{Buffer, decode, encode};
pub use crate::index::parts::codec::{Codec, Record};
