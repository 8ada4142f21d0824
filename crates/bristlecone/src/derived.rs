//! What `derive(Key)` refers to. Not for anything else: it may change with any version.

pub use crate::kinds::composed::tuple_kind;
pub use crate::kinds::{Buffer, decode, encode};
pub use crate::shared::codec::{Codec, Record};
