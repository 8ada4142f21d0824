//! Support code for `derive(Key)`. Private: it may change with any version.

pub use crate::api::kinds::composed::tuple_kind;
pub use crate::api::kinds::{Buffer, decode, encode};
pub use crate::index::parts::codec::{Codec, Record};
