//! What a tree is created with.

use super::layout::PARAMS;

/// What separates the name of the value type from the time after which values expire.
const EXPIRE_AFTER: char = ';';
/// How the names of value types begin that have a time.
const EXPIRING: &str = "Expiring<";

/// A tree's index in the directory, which its chunks name as their owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TreeId(pub u32);

/// Properties with which a tree is created.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TreeSpec {
    /// Its name: 1 to 64 bytes.
    pub name: String,
    /// Code of its design.
    pub design: u32,
    /// Name of its key type, up to 48 bytes.
    pub key_kind: String,
    /// Name of its value type, up to 48 bytes.
    pub value_kind: String,
    /// Milliseconds after which its values expire unless they name a time; 0 if they do not expire. The directory has it
    /// behind the name of the value type: see [`stored_value_kind`](Self::stored_value_kind).
    pub expire_after_ms: u64,
    /// The design's parameters.
    pub params: [u64; PARAMS],
}

/// A tree that exists.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TreeEntry {
    /// Its index in the directory.
    pub id: TreeId,
    /// The properties at creation.
    pub spec: TreeSpec,
}

impl TreeEntry {
    /// Returns the entry of a tree.
    pub fn new(id: TreeId, spec: TreeSpec) -> Self {
        Self { id, spec }
    }
}

impl TreeSpec {
    /// Returns a specification with all parameters zero.
    pub fn new(
        name: impl Into<String>,
        design: u32,
        key_kind: impl Into<String>,
        value_kind: impl Into<String>,
    ) -> Self {
        let (name, key_kind, value_kind) = (name.into(), key_kind.into(), value_kind.into());
        Self { name, design, key_kind, value_kind, expire_after_ms: 0, params: [0; PARAMS] }
    }

    /// Returns a copy whose values expire after this number of milliseconds; 0 means never.
    pub fn with_expire_after(mut self, millis: u64) -> Self {
        self.expire_after_ms = millis;
        self
    }

    /// Returns the name of the value type and the time after which values expire, as directory and journal store them:
    /// `Expiring<u64>;900000`. A version that does not know the time does not know such a type, and refuses the tree.
    pub fn stored_value_kind(&self) -> String {
        match self.expire_after_ms {
            0 => self.value_kind.clone(),
            millis => format!("{}{EXPIRE_AFTER}{millis}", self.value_kind),
        }
    }

    /// Returns a copy with a value type and a time in the form of [`stored_value_kind`](Self::stored_value_kind). Any other
    /// text is the name of a type.
    pub fn with_stored_value_kind(self, stored: String) -> Self {
        let of_expiring = |(kind, millis): &(String, u64)| {
            kind.starts_with(EXPIRING) && *millis > 0 && stored == format!("{kind}{EXPIRE_AFTER}{millis}")
        };
        let split = stored.rsplit_once(EXPIRE_AFTER);
        let timed = split.and_then(|(kind, millis)| Some((kind.to_owned(), millis.parse().ok()?)));
        let (value_kind, expire_after_ms) = timed.filter(of_expiring).unwrap_or((stored, 0));
        Self { value_kind, expire_after_ms, ..self }
    }

    /// Returns a copy with other parameters.
    pub fn with_params(mut self, params: [u64; PARAMS]) -> Self {
        self.params = params;
        self
    }

    /// Returns a copy with another name.
    pub fn with_name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_after_which_values_expire_is_stored_behind_their_type() {
        let spec = |kind: &str| TreeSpec::new("t", 1, "u64", kind);
        let timed = spec("Expiring<(str, u64)>").with_expire_after(900_000);
        assert_eq!(timed.stored_value_kind(), "Expiring<(str, u64)>;900000");
        for spec in
            [timed, spec("u64"), spec(""), spec("mine;5"), spec("Expiring<u64>").with_expire_after(u64::MAX)]
        {
            let stored = spec.stored_value_kind();
            assert_eq!(TreeSpec::new("t", 1, "u64", "").with_stored_value_kind(stored), spec);
        }
        let of_others = ["u64;", "u64;0", "u64;x", "u64;-1", "u64;18446744073709551616", ";", "mine;5", ";5"];
        let damaged = ["Expiring<u64>;0", "Expiring<u64>;05", "Expiring<u64>;+5", "Expiring<u64>;"];
        for unknown in of_others.into_iter().chain(damaged) {
            assert_eq!(spec("").with_stored_value_kind(unknown.to_owned()), spec(unknown), "{unknown}");
        }
    }
}
