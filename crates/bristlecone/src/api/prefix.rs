//! Ranges of keys with a common prefix.

use std::ops::Bound;

use bristlecone_pm::Result;

use crate::api::iter::{Limit, Range};
use crate::api::kinds::{Buffer, Element};
use crate::index::parts::codec::Codec;
use crate::index::parts::encoded::Encoded;
use crate::{Key, Tree, Value};

/// A prefix of keys of type `K`.
///
/// | keys | prefixes |
/// |---|---|
/// | `String`, `&str` | `&str` |
/// | `Vec<u8>`, `&[u8]`, `[u8; N]` | `&[u8]`, `&[u8; M]` |
/// | tuples of 2 to 8 elements | tuples of fewer: the first elements |
///
/// The library implements the trait for all of these types. Its hidden items may change.
pub trait Prefix<K: Key> {
    #[doc(hidden)]
    fn append(self, schema: &K::Schema, to: &mut Buffer) -> Result<()>;
}

macro_rules! plain {
    ([$($generics:tt)*] $key:ty, $prefix:ty, $bytes:expr) => {
        impl<$($generics)*> Prefix<$key> for $prefix {
            fn append(self, (): &(), to: &mut Buffer) -> Result<()> {
                to.extend_from_slice($bytes(self));
                Ok(())
            }
        }
    };
}

plain!([] String, &str, str::as_bytes);
plain!([] &'static str, &str, str::as_bytes);
plain!([] Vec<u8>, &[u8], std::convert::identity);
plain!([] &'static [u8], &[u8], std::convert::identity);
plain!([const N: usize] [u8; N], &[u8], std::convert::identity);
plain!([const M: usize] Vec<u8>, &[u8; M], std::convert::identity);
plain!([const M: usize] &'static [u8], &[u8; M], std::convert::identity);
plain!([const N: usize, const M: usize] [u8; N], &[u8; M], std::convert::identity);

/// The leading elements of a tuple, for each number of following elements.
macro_rules! leading {
    ([$($lead:ident $name:ident),+]) => {};
    ([$($lead:ident $name:ident),+] $next:ident $next_name:ident $(, $rest:ident $rest_name:ident)*) => {
        leading!(@one [$($lead $name),+] $next $(, $rest)*);
        leading!([$($lead $name,)+ $next $next_name] $($rest $rest_name),*);
    };
    (@one [$($lead:ident $name:ident),+] $($rest:ident),+) => {
        impl<'a, $($lead: Element,)+ $($rest: Element),+> Prefix<($($lead,)+ $($rest),+)> for ($($lead::Ref<'a>,)+) {
            fn append(self, (): &(), to: &mut Buffer) -> Result<()> {
                let ($($name,)+) = self;
                $($lead::append($name, to);)+
                Ok(())
            }
        }
    };
}

leading!([A a] B b);
leading!([A a] B b, C c);
leading!([A a] B b, C c, D d);
leading!([A a] B b, C c, D d, E e);
leading!([A a] B b, C c, D d, E e, F f);
leading!([A a] B b, C c, D d, E e, F f, G g);
leading!([A a] B b, C c, D d, E e, F f, G g, H h);

impl<K: Key, V: Value> Tree<K, V> {
    /// Iterates over the items whose keys begin with a prefix, in order, from both ends: otherwise
    /// the same as [`range`](Self::range). For tuples, these are the keys with the same leading
    /// elements.
    ///
    /// ```
    /// # let pool = bristlecone::Pool::temporary()?;
    /// let pages = pool.tree::<&str, u64>("pages")?;
    /// for page in ["/", "/trees", "/trees/oak", "/trunks"] {
    ///     pages.insert(page, 0)?;
    /// }
    /// assert_eq!(pages.prefix("/trees").count(), 2);
    ///
    /// let visits = pool.tree::<(&str, u32), u64>("visits by page and year")?;
    /// visits.insert(("/", 2025), 6)?;
    /// visits.insert(("/", 2026), 7)?;
    /// visits.insert(("/trees", 2026), 3)?;
    /// assert_eq!(visits.prefix(("/",)).count(), 2);
    /// # Ok::<(), bristlecone::Error>(())
    /// ```
    pub fn prefix(&self, prefix: impl Prefix<K>) -> Range<'_, K, V> {
        match self.prefix_limits(prefix) {
            Ok((from, to)) => Range::new(self, from, to),
            Err(error) => Range::refused(self, error),
        }
    }

    /// Returns the bounds of the keys with a prefix in stored form.
    pub(crate) fn prefix_limits(&self, prefix: impl Prefix<K>) -> Result<(Limit<K>, Limit<K>)> {
        let mut bytes = Buffer::new();
        prefix.append(&self.keys, &mut bytes)?;
        let (from, to) = limits_of_prefix(&bytes);
        let key = |bytes| K::Codec::decode(Encoded::Bytes(bytes)).expect("keys with prefixes are records");
        Ok((from.map(key), to.map(key)))
    }
}

/// A bound of byte strings.
type BytesLimit = Bound<Box<[u8]>>;

/// Returns the bounds of the byte strings that begin with a prefix.
fn limits_of_prefix(prefix: &[u8]) -> (BytesLimit, BytesLimit) {
    // The next prefix of at most this length. A prefix of only `ff` bytes has none.
    let behind = prefix.iter().rposition(|byte| *byte < u8::MAX).map(|last| {
        let mut behind: Box<[u8]> = prefix[..=last].into();
        behind[last] += 1;
        behind
    });
    (Bound::Included(prefix.into()), behind.map_or(Bound::Unbounded, Bound::Excluded))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_hold_what_begins_with_them() {
        let within = |prefix: &[u8], key: &[u8]| {
            let (from, to) = limits_of_prefix(prefix);
            let above = matches!(from, Bound::Included(from) if *from <= *key);
            above && !matches!(to, Bound::Excluded(to) if *to <= *key)
        };
        let bytes = [0, 1, 0x7f, 0xfe, 0xff];
        let mut strings = vec![Vec::new()];
        for len in 0..3 {
            let longer: Vec<_> = strings.iter().filter(|string| string.len() == len).cloned().collect();
            strings
                .extend(longer.iter().flat_map(|string| bytes.map(|byte| [&string[..], &[byte]].concat())));
        }
        for prefix in &strings {
            for key in &strings {
                assert_eq!(within(prefix, key), key.starts_with(prefix), "{prefix:x?} {key:x?}");
            }
        }
    }
}
