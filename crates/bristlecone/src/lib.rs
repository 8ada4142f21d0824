#![allow(missing_docs)]
mod shared;
