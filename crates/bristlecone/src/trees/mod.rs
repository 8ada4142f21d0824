pub mod sstree;
use crate::shared::form::*;
#[derive(Clone, Copy)] pub enum WriteMode { Upsert, New, Update }
pub struct TreeStats;
pub struct Batch<K:KeyForm,V:ValueForm>(pub Vec<(K::Owned,V::Owned)>);
pub trait Index<K,V>{}
