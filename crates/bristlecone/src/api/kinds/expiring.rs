//! Values with a time at which they expire: the kind `Expiring<…>`.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::Buffer;
use crate::index::parts::codec::Codec;
use crate::index::parts::encoded::Item;
use crate::{Result, Value};

/// Bytes of the time in front of a stored value.
pub(crate) const EXPIRY_BYTES: usize = 8;

/// When an entry expires: a time in whole milliseconds, or never.
///
/// ```
/// use bristlecone::Expiry;
/// use std::time::{Duration, SystemTime};
///
/// let soon = Expiry::at(SystemTime::now() + Duration::from_secs(60));
/// assert!(!soon.is_over(SystemTime::now()) && !Expiry::NEVER.is_over(SystemTime::now()));
/// assert_eq!(Expiry::NEVER.time(), None);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Expiry(u64);

impl Expiry {
    /// The entry does not expire.
    pub const NEVER: Self = Self(0);

    /// Returns the expiry at a time, rounded up to a millisecond. A time before 1970 has passed already.
    pub fn at(time: SystemTime) -> Self {
        let since = time.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        let whole = u64::try_from(since.as_micros().div_ceil(1000)).unwrap_or(u64::MAX);
        Self(whole.max(1))
    }

    /// Returns the expiry at a number of milliseconds since 1970; 0 is [`NEVER`](Self::NEVER).
    pub fn from_millis(millis: u64) -> Self {
        Self(millis)
    }

    /// Returns the number of milliseconds since 1970; 0 for [`NEVER`](Self::NEVER).
    pub fn as_millis(self) -> u64 {
        self.0
    }

    /// Returns the time, or `None` if the entry does not expire, or later than the system can represent.
    pub fn time(self) -> Option<SystemTime> {
        (self != Self::NEVER).then(|| UNIX_EPOCH.checked_add(Duration::from_millis(self.0))).flatten()
    }

    /// Returns whether the time has come.
    pub fn is_over(self, now: SystemTime) -> bool {
        self.is_over_at(millis(now))
    }

    pub(crate) fn is_over_at(self, now: u64) -> bool {
        self != Self::NEVER && self.0 <= now
    }
}

/// Returns the whole milliseconds since 1970.
pub(crate) fn millis(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// A value with the time at which it expires. As a type of values, `Expiring<V>`, it makes a tree whose entries expire:
/// see [`ExpiringTree`](crate::ExpiringTree).
///
/// The time is stored in the value, so it survives crashes and is part of every copy, journal and snapshot. A value has
/// up to 128 KiB less 8 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expiring<V> {
    /// The value.
    pub value: V,
    /// When it expires.
    pub expiry: Expiry,
}

impl<V> Expiring<V> {
    /// Creates a value that expires at a time.
    pub fn new(value: V, expiry: Expiry) -> Self {
        Self { value, expiry }
    }

    /// Returns the value, unless it has expired.
    ///
    /// ```
    /// use bristlecone::{Expiring, Expiry};
    /// use std::time::{Duration, UNIX_EPOCH};
    ///
    /// let at = |seconds| UNIX_EPOCH + Duration::from_secs(seconds);
    /// let entry = Expiring::new("ada", Expiry::at(at(100)));
    /// assert_eq!((entry.live(at(99)), entry.live(at(100))), (Some("ada"), None));
    /// ```
    pub fn live(self, now: SystemTime) -> Option<V> {
        self.live_at(millis(now))
    }

    pub(crate) fn live_at(self, now: u64) -> Option<V> {
        (!self.expiry.is_over_at(now)).then_some(self.value)
    }
}

/// Splits the bytes of an entry; `None` if they are too short.
pub(crate) fn split(bytes: &[u8]) -> Option<(Expiry, &[u8])> {
    bytes.split_first_chunk().map(|(expiry, value)| (Expiry(u64::from_le_bytes(*expiry)), value))
}

/// Returns the bytes of an entry.
pub(crate) fn join(expiry: Expiry, value: Item<'_>) -> Buffer {
    let mut bytes = Buffer::from_slice(&expiry.0.to_le_bytes());
    match value {
        Item::Word(word) => bytes.extend_from_slice(&word.to_le_bytes()),
        Item::Bytes(value) => bytes.extend_from_slice(value),
    }
    bytes
}

/// Returns the word behind the time of an entry.
pub(crate) fn word_of(stored: &[u8]) -> Option<u64> {
    stored.try_into().ok().map(u64::from_le_bytes)
}

/// Returns the bytes of an entry.
pub(crate) fn bytes_of<C: Codec>(entry: C::Ref<'_>) -> Option<&[u8]> {
    if let Item::Bytes(bytes) = C::item(entry) { Some(bytes) } else { None }
}

/// Returns an entry in the form of its codec.
pub(crate) fn entry_of<C: Codec>(bytes: &[u8]) -> C::Ref<'_> {
    C::of_item(Item::Bytes(bytes)).expect("entries are records")
}

/// The time, followed by the stored form of the value.
impl<V: Value> Value for Expiring<V> {
    type Ref<'a> = Expiring<V::Ref<'a>>;
    type Owned = Expiring<V::Owned>;
    type Codec = <V::Codec as Codec>::Entry;
    type Schema = V::Schema;

    fn kind() -> String {
        format!("Expiring<{}>", V::kind())
    }
    fn fixed() -> Result<V::Schema> {
        V::fixed()
    }
    fn name(schema: &V::Schema) -> String {
        format!("Expiring<{}>", V::name(schema))
    }
    fn lend(entry: &Self::Owned) -> Self::Ref<'_> {
        Expiring { value: V::lend(&entry.value), expiry: entry.expiry }
    }
    fn with<R>(
        schema: &V::Schema,
        entry: Self::Ref<'_>,
        use_it: impl FnOnce(<Self::Codec as Codec>::Ref<'_>) -> Result<R>,
    ) -> Result<R> {
        V::with(schema, entry.value, |stored| {
            use_it(entry_of::<Self::Codec>(&join(entry.expiry, V::Codec::item(stored))))
        })
    }
    fn view<R>(
        schema: &V::Schema,
        entry: <Self::Codec as Codec>::Ref<'_>,
        show: impl FnOnce(Self::Ref<'_>) -> R,
    ) -> Option<R> {
        let (expiry, stored) = split(bytes_of::<Self::Codec>(entry)?)?;
        V::view(schema, V::in_entry(schema, stored)?, |value| show(Expiring { value, expiry }))
    }
    fn decode(schema: &V::Schema, entry: <Self::Codec as Codec>::Ref<'_>) -> Option<Self::Owned> {
        let (expiry, stored) = split(bytes_of::<Self::Codec>(entry)?)?;
        V::decode(schema, V::in_entry(schema, stored)?).map(|value| Expiring { value, expiry })
    }
    fn in_entry<'a>(_: &V::Schema, stored: &'a [u8]) -> Option<<Self::Codec as Codec>::Ref<'a>> {
        Some(entry_of::<Self::Codec>(stored))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(micros: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_micros(micros)
    }

    #[test]
    fn times_are_rounded_up_and_are_never_zero() {
        let rounded = [0, 1, 999, 1000, 1001, 5_000_000].map(|micros| Expiry::at(at(micros)).as_millis());
        assert_eq!(rounded, [1, 1, 1, 1, 2, 5000]);
        assert_eq!(Expiry::at(UNIX_EPOCH - Duration::from_secs(9)).as_millis(), 1);
        assert_eq!(Expiry::at(at(5_000_000)).time(), Some(at(5_000_000)));
        assert_eq!(
            (Expiry::from_millis(u64::MAX).is_over(at(u64::MAX)), Expiry::NEVER.time()),
            (false, None)
        );
    }

    #[test]
    fn an_entry_lives_until_its_time() {
        let entry = Expiring::new((), Expiry::from_millis(2));
        assert_eq!(
            (entry.live(at(1999)), entry.live(at(2000)), entry.live(at(9000))),
            (Some(()), None, None)
        );
        assert_eq!(Expiring::new(7, Expiry::NEVER).live(at(u64::MAX)), Some(7));
        assert!(!Expiry::from_millis(1).is_over(UNIX_EPOCH - Duration::from_secs(1)));
    }

    #[test]
    fn entries_have_one_stored_form() {
        type Word = Expiring<u64>;
        let stored =
            Word::with(&(), Expiring::new(0x0102, Expiry::from_millis(3)), |stored| Ok(stored.to_vec()))
                .unwrap();
        assert_eq!(stored, [3, 0, 0, 0, 0, 0, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0]);
        assert_eq!(Word::decode(&(), &stored), Some(Expiring::new(0x0102, Expiry::from_millis(3))));
        for damaged in [&stored[..15], &stored[..7], &[stored.clone(), vec![0]].concat(), &[]] {
            assert_eq!(Word::decode(&(), damaged), None, "{damaged:?}");
        }
        type Text = Expiring<&'static str>;
        let stored =
            Text::with(&(), Expiring::new("ab", Expiry::NEVER), |stored| Ok(stored.to_vec())).unwrap();
        assert_eq!(stored, [0, 0, 0, 0, 0, 0, 0, 0, b'a', b'b']);
        assert_eq!(Text::decode(&(), &[0; 8]), Some(Expiring::new(String::new(), Expiry::NEVER)));
        assert_eq!(Text::decode(&(), b"00000000\xff"), None);
        assert_eq!((Word::kind(), Text::kind()), ("Expiring<u64>".to_owned(), "Expiring<str>".to_owned()));
    }
}
