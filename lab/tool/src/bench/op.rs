//! Operations, and mixes of them.

use std::fmt;
use std::str::FromStr;

/// One kind of operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Op {
    /// `upsert` of an absent key.
    Insert,
    /// `insert_new` of an absent key.
    InsertNew,
    /// `get` of an existing key.
    Get,
    /// `update` of an existing key.
    Update,
    /// `upsert` of an existing key.
    Upsert,
    /// `remove` of a key.
    Remove,
    /// Entries in order from a key on.
    Scan,
    /// `get`, then `update` of the same key: one operation.
    ReadModifyWrite,
    /// `get_many` of existing keys.
    GetMany,
    /// `insert_many` of absent keys.
    InsertMany,
    /// `upsert_many` of existing keys.
    UpsertMany,
    /// `remove_many` of keys.
    RemoveMany,
}

/// Names accepted by `--mix`.
const OPS: [(&str, Op); 12] = [
    ("insert", Op::Insert),
    ("insert_new", Op::InsertNew),
    ("get", Op::Get),
    ("update", Op::Update),
    ("upsert", Op::Upsert),
    ("remove", Op::Remove),
    ("scan", Op::Scan),
    ("read_modify_write", Op::ReadModifyWrite),
    ("get_many", Op::GetMany),
    ("insert_many", Op::InsertMany),
    ("upsert_many", Op::UpsertMany),
    ("remove_many", Op::RemoveMany),
];

impl Op {
    /// Returns every operation.
    pub fn all() -> impl Iterator<Item = Self> {
        OPS.into_iter().map(|(_, op)| op)
    }

    /// Returns whether it adds a key.
    pub fn adds(self) -> bool {
        matches!(self, Self::Insert | Self::InsertNew | Self::InsertMany)
    }

    /// Returns whether one call processes several keys.
    pub fn is_many(self) -> bool {
        matches!(self, Self::GetMany | Self::InsertMany | Self::UpsertMany | Self::RemoveMany)
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(OPS.iter().find(|(_, op)| op == self).map_or("?", |(name, _)| name))
    }
}

/// Operations in proportions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mix(Vec<(Op, u32)>);

impl Mix {
    /// Creates a mix of a single operation.
    pub fn only(op: Op) -> Self {
        Self(vec![(op, 1)])
    }

    /// Creates a mix of these shares; those of 0 are omitted.
    pub fn of(parts: &[(Op, u32)]) -> Self {
        Self(parts.iter().copied().filter(|(_, share)| *share > 0).collect())
    }

    /// Returns the operation, if there is only one kind.
    pub fn single(&self) -> Option<Op> {
        match self.0.as_slice() {
            [(op, _)] => Some(*op),
            _ => None,
        }
    }

    /// Returns whether it contains this operation.
    pub fn has(&self, op: Op) -> bool {
        self.0.iter().any(|(part, _)| *part == op)
    }

    /// Returns the operation selected by a random word.
    pub fn pick(&self, random: u64) -> Op {
        let total: u64 = self.0.iter().map(|(_, share)| u64::from(*share)).sum();
        let mut at = ((u128::from(random) * u128::from(total)) >> 64) as u64;
        for (op, share) in &self.0 {
            match at.checked_sub(u64::from(*share)) {
                Some(rest) => at = rest,
                None => return *op,
            }
        }
        self.0[0].0
    }
}

impl FromStr for Mix {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts: Vec<(Op, u32)> = Vec::new();
        for part in text.split(',') {
            let (name, share) =
                part.split_once('=').ok_or_else(|| format!("{part:?}: write operation=share"))?;
            let known = OPS.iter().find(|(known, _)| *known == name.trim());
            let names = || OPS.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
            let (_, op) = known.ok_or_else(|| format!("no operation {name:?}: {}", names()))?;
            let share = share.trim().trim_end_matches('%').parse();
            let share = share.map_err(|_| format!("{part:?}: the share must be a whole number"))?;
            if parts.iter().any(|(known, _)| known == op) {
                return Err(format!("{op} stands twice"));
            }
            if share > 0 {
                parts.push((*op, share));
            }
        }
        match (parts.as_slice(), parts.iter().find(|(op, _)| op.is_many())) {
            ([], _) => Err("every share is 0".to_owned()),
            ([_, _, ..], Some((op, _))) => Err(format!("{op} stands alone, as in {op}=1")),
            _ => Ok(Self(parts)),
        }
    }
}

impl fmt::Display for Mix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts: Vec<String> = self.0.iter().map(|(op, share)| format!("{op}={share}")).collect();
        f.write_str(&parts.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mix_printed_parses_to_the_same() {
        let mix: Mix = "get=50,update=30%,scan=20".parse().unwrap();
        assert_eq!(mix.to_string(), "get=50,update=30,scan=20");
        assert_eq!(mix.single(), None);
        assert_eq!("get=1,scan=0".parse::<Mix>().unwrap().single(), Some(Op::Get));
        for wrong in ["", "get", "get=x", "fly=1", "get=0", "get=1,get=2", "get=-1", "get=1,get_many=1"] {
            assert!(wrong.parse::<Mix>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn mix_picks_in_its_proportions() {
        let mix: Mix = "get=3,insert=1".parse().unwrap();
        let step = u64::MAX / 1000;
        let gets = (0..1000).filter(|i| mix.pick(i * step) == Op::Get).count();
        assert!((749..=751).contains(&gets), "{gets}");
        assert_eq!(mix.pick(u64::MAX), Op::Insert);
    }
}
