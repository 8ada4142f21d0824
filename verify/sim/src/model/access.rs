//! Operations on one key, and their expected results.

/// One operation on one key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Looks it up.
    Get,
    /// Writes this value.
    Insert(u64),
    /// Writes this value, without returning the previous one.
    Upsert(u64),
    /// Writes this value if the key is absent.
    InsertNew(u64),
    /// Writes this value if the key exists.
    Update(u64),
    /// Replaces the first value by the second.
    Swap(u64, u64),
    /// Removes it.
    Remove,
    /// Removes it if it has this value.
    RemoveIf(u64),
    /// Removes it, without returning the previous value.
    Discard,
}

/// The result of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    /// The existing value.
    Value(Option<u64>),
    /// No result.
    Done,
    /// The value was as expected, and was replaced.
    Swapped,
    /// The value was as expected, and was removed.
    Removed,
    /// There was no space, and nothing changed.
    Refused,
}

impl Access {
    /// Returns the value that it writes, if it writes one unconditionally.
    pub fn written(self) -> Option<u64> {
        match self {
            Self::Insert(value) | Self::Upsert(value) => Some(value),
            _ => None,
        }
    }

    /// Returns the new value of a key whose value is `held`, and the expected result.
    pub fn on(self, held: Option<u64>) -> (Option<u64>, Seen) {
        let after = match self {
            Self::Get => held,
            Self::Insert(value) => Some(value),
            Self::Upsert(value) => return (Some(value), Seen::Done),
            Self::Discard => return (None, Seen::Done),
            Self::InsertNew(value) => held.or(Some(value)),
            Self::Update(value) => held.and(Some(value)),
            Self::Swap(expected, new) if held == Some(expected) => return (Some(new), Seen::Swapped),
            Self::Swap(..) => held,
            Self::Remove => None,
            Self::RemoveIf(expected) if held == Some(expected) => return (None, Seen::Removed),
            Self::RemoveIf(_) => held,
        };
        (after, Seen::Value(held))
    }
}
