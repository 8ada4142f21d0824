//! Trees whose design and form of values are known at run time, with the codec of their keys.

use std::any::Any;
use std::sync::Arc;

use super::{Form, Index};
use crate::index::parts::codec::{Codec, Inline, Record};

/// A tree of keys `K` and values `V`.
pub type Shared<K, V> = Arc<dyn Index<K, V>>;

/// A tree of keys `K`.
pub enum OfKeys<K: Codec> {
    /// Its values are words.
    Words(Shared<K, Inline>),
    /// Its values are records.
    Records(Shared<K, Record>),
}

impl<K: Codec> OfKeys<K> {
    /// Erases the design of a tree, which has values of any form.
    pub fn new<T: Index<K, Inline> + Index<K, Record>>(tree: T, values: Form) -> Self {
        match values {
            Form::Words => Self::Words(Arc::new(tree)),
            Form::Records => Self::Records(Arc::new(tree)),
        }
    }

    /// Returns the tree with the codec of its values as a type parameter; `None` if it is another codec.
    pub fn typed<V: Codec>(&self) -> Option<Shared<K, V>> {
        let tree: &dyn Any = match self {
            Self::Words(tree) => tree,
            Self::Records(tree) => tree,
        };
        tree.downcast_ref().cloned()
    }
}
