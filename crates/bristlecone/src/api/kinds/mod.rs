//! The kinds of keys and values, whose encodings (words and bytes) preserve the order of the type.

pub(crate) mod composed;
#[cfg(feature = "serde")]
pub(crate) mod encoded;
pub(crate) mod expiring;
pub(crate) mod records;
#[cfg(test)]
mod tests;
pub(crate) mod words;

use smallvec::SmallVec;

use crate::Key;

/// Buffer that builds encoded keys and values up to this length without allocating.
pub type Buffer = SmallVec<[u8; 256]>;

/// A type that can be an element of options and tuples: every key type.
///
/// The encoding preserves the order of tuples: no element is a prefix of another one of the same type.
/// Integers are big-endian with the sign bit flipped. A zero byte of a string becomes `00 ff`; the string
/// ends with `00 01`.
pub trait Element: Key {
    #[doc(hidden)]
    fn append(element: Self::Ref<'_>, to: &mut Buffer);

    /// Takes an element from the front of the bytes. Returns `None` if there is none.
    #[doc(hidden)]
    fn take(from: &mut &[u8]) -> Option<Self::Owned>;
}

/// Calls `use_it` with the bytes of a single element.
#[doc(hidden)]
pub fn encode<E: Element, R>(element: E::Ref<'_>, use_it: impl FnOnce(&[u8]) -> R) -> R {
    let mut buffer = Buffer::new();
    E::append(element, &mut buffer);
    use_it(&buffer)
}

/// Decodes an element that must use all of the bytes.
#[doc(hidden)]
pub fn decode<E: Element>(mut bytes: &[u8]) -> Option<E::Owned> {
    E::take(&mut bytes).filter(|_| bytes.is_empty())
}

/// Appends bytes so that they order before their continuations.
pub(crate) fn append_escaped(bytes: &[u8], to: &mut Buffer) {
    let mut pieces = bytes.split(|byte| *byte == 0);
    if let Some(first) = pieces.next() {
        to.extend_from_slice(first);
    }
    for piece in pieces {
        to.extend_from_slice(&[0, 0xff]);
        to.extend_from_slice(piece);
    }
    to.extend_from_slice(&[0, 1]);
}

/// Takes bytes up to their terminator.
pub(crate) fn take_escaped(from: &mut &[u8]) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    loop {
        let end = from.iter().position(|byte| *byte == 0)?;
        bytes.extend_from_slice(&from[..end]);
        let mark = *from.get(end + 1)?;
        *from = &from[end + 2..];
        match mark {
            0xff => bytes.push(0),
            1 => return Some(bytes),
            _ => return None,
        }
    }
}
