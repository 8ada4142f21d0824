//! The conformance table of the bindings, which every language runs: see `bindings/conformance/README.md`.

use std::fs;
use std::path::PathBuf;

use bristlecone::dynamic::{Datum, Kind};
use bristlecone::{Error, Expiry};
use serde_json::Value;

/// A step of a case: an operation, its arguments, and what it returns.
#[derive(Clone, Debug)]
pub struct Step(Value);

/// Steps on a new pool.
#[derive(Clone, Debug)]
pub struct Case {
    /// Its file and its name.
    pub name: String,
    /// Its steps, in order.
    pub steps: Vec<Step>,
    /// Whether its pool has a journal.
    pub has_journal: bool,
}

/// What an operation returned.
#[derive(Debug, PartialEq)]
pub enum Gives {
    /// Nothing.
    Nothing,
    /// A value.
    Datum(Datum<'static>),
    /// The value of each key, if it exists.
    Data(Vec<Option<Datum<'static>>>),
    /// Items in the order in which they came.
    Items(Vec<(Datum<'static>, Datum<'static>)>),
    /// Whether a key exists.
    Bool(bool),
    /// A number of items, or a time in milliseconds.
    Count(u64),
    /// Of a removal of expired entries: how many it read and removed, and whether it reached the end.
    Removal(u64, u64, bool),
    /// Trees by name, each with its kinds.
    Trees(Vec<[String; 3]>),
    /// The commits of a change stream.
    Commits(Vec<Vec<Change>>),
}

/// A change in a change stream.
#[derive(Debug, Default, PartialEq)]
pub struct Change {
    /// What happened.
    pub what: String,
    /// The name of the tree.
    pub tree: String,
    /// The key.
    pub key: Option<Datum<'static>>,
    /// The new value.
    pub value: Option<Datum<'static>>,
    /// Whether the key was present before, if that is known.
    pub existed: Option<bool>,
    /// The new name of the tree.
    pub renamed_to: Option<String>,
}

/// The outcome of a step: its name in the table, and what was returned.
pub type Outcome = (&'static str, Gives);

/// Returns the cases that need no more than these features.
///
/// # Panics
///
/// If the table cannot be read.
pub fn cases(features: &[&str]) -> Vec<Case> {
    let folder = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../bindings/conformance"));
    let mut files: Vec<_> =
        fs::read_dir(&folder).expect("the table").map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "json"));
    files.sort();
    files.iter().flat_map(|file| cases_of(file, features)).collect()
}

fn cases_of(file: &std::path::Path, features: &[&str]) -> Vec<Case> {
    let table: Value = serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap();
    let stem = file.file_stem().unwrap().to_string_lossy();
    let mut cases = table["cases"].as_array().unwrap().clone();
    cases.retain(|case| list(&case["needs"]).iter().all(|need| features.contains(&text(need))));
    let named = |case: &Value| Case {
        name: format!("{stem}: {}", text(&case["name"])),
        steps: list(&case["steps"]).iter().cloned().map(Step).collect(),
        has_journal: list(&case["needs"]).iter().any(|need| text(need) == "changes"),
    };
    cases.iter().map(named).collect()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("{value} is not a string"))
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

impl Step {
    /// Returns the operation.
    pub fn operation(&self) -> &str {
        text(&self.0["do"])
    }

    /// Returns an argument that is a name.
    ///
    /// # Panics
    ///
    /// If the step has none.
    pub fn name(&self, argument: &str) -> &str {
        self.optional_name(argument).unwrap_or_else(|| panic!("no {argument} in {}", self.0))
    }

    /// Returns an argument that is a name.
    pub fn optional_name(&self, argument: &str) -> Option<&str> {
        self.0.get(argument).map(text)
    }

    /// Returns whether a flag is set.
    pub fn is_set(&self, flag: &str) -> bool {
        self.0.get(flag).is_some_and(|flag| flag.as_bool().unwrap())
    }

    /// Returns an argument that is a number.
    pub fn number(&self, argument: &str) -> Option<u64> {
        self.0.get(argument).map(|number| number.as_u64().unwrap())
    }

    /// Returns the expiry that a write names, if it names one.
    pub fn expires(&self) -> Option<Expiry> {
        self.number("expires").map(Expiry::from_millis)
    }

    /// Returns the maximum number of items of a scan.
    pub fn limit(&self) -> usize {
        self.0.get("limit").map_or(usize::MAX, |limit| limit.as_u64().unwrap() as usize)
    }

    /// Returns the largest number of repetitions in the step.
    pub fn times_max(&self) -> u64 {
        fn within(value: &Value) -> u64 {
            match value {
                Value::Array(elements) => elements.iter().map(within).max().unwrap_or(0),
                Value::Object(members) => {
                    let own = members.get("times").and_then(Value::as_u64).unwrap_or(0);
                    members.values().map(within).max().unwrap_or(0).max(own)
                }
                _ => 0,
            }
        }
        within(&self.0)
    }

    /// Returns an argument that is a key or a value, if the step has it.
    pub fn datum(&self, argument: &str, kind: &Kind) -> Option<Datum<'static>> {
        self.0.get(argument).map(|value| datum(kind, value))
    }

    /// Returns an argument that is an array of keys.
    pub fn data(&self, argument: &str, kind: &Kind) -> Vec<Datum<'static>> {
        list(&self.0[argument]).iter().map(|value| datum(kind, value)).collect()
    }

    /// Returns an argument that is an array of items.
    pub fn items(
        &self,
        argument: &str,
        (keys, values): (&Kind, &Kind),
    ) -> Vec<(Datum<'static>, Datum<'static>)> {
        list(&self.0[argument]).iter().map(|item| (datum(keys, &item[0]), datum(values, &item[1]))).collect()
    }

    /// Returns the changes of a batch.
    pub fn changes(&self) -> Vec<Self> {
        list(&self.0["changes"]).iter().cloned().map(Self).collect()
    }

    /// Asserts that the outcome is that of the table, in a tree of these kinds.
    ///
    /// # Panics
    ///
    /// If it is not.
    pub fn expect(&self, (status, gives): &Outcome, kinds: Option<(&Kind, &Kind)>, what: &str) {
        let expected = (self.optional_name("is").unwrap_or("ok"), self.gives(kinds, gives));
        assert_eq!((*status, gives), (expected.0, &expected.1), "{what}: {}", self.0);
    }

    /// Returns what the table says, in the form of what was returned.
    fn gives(&self, kinds: Option<(&Kind, &Kind)>, like: &Gives) -> Gives {
        let Some(gives) = self.0.get("gives") else { return Gives::Nothing };
        let kind = |kinds: Option<(&Kind, &Kind)>| kinds.map_or(Kind::Unit, |kinds| kinds.1.clone());
        match like {
            Gives::Data(_) => {
                let one = |value: &Value| value.get("absent").is_none().then(|| datum(&kind(kinds), value));
                Gives::Data(list(gives).iter().map(one).collect())
            }
            Gives::Items(_) => Gives::Items(self.items("gives", kinds.expect("a tree"))),
            Gives::Bool(_) => Gives::Bool(gives.as_bool().unwrap()),
            Gives::Count(_) => Gives::Count(gives.as_u64().unwrap()),
            Gives::Removal(..) => {
                let count = |at: usize| gives[at].as_u64().unwrap();
                Gives::Removal(count(0), count(1), gives[2].as_bool().unwrap())
            }
            Gives::Trees(_) => {
                let one = |tree: &Value| [0, 1, 2].map(|at| text(&tree[at]).to_owned());
                Gives::Trees(list(gives).iter().map(one).collect())
            }
            Gives::Commits(_) => Gives::Commits(self.commits()),
            Gives::Datum(_) | Gives::Nothing => Gives::Datum(datum(&kind(kinds), gives)),
        }
    }
}

impl Step {
    /// Returns the commits that the step expects.
    pub fn commits(&self) -> Vec<Vec<Change>> {
        list(&self.0["gives"]).iter().map(|commit| self.commit(commit)).collect()
    }

    fn commit(&self, commit: &Value) -> Vec<Change> {
        let stored = |change: &Value, argument: &str, kind: &str| {
            change.get(argument).map(|value| datum(&self.name(kind).parse().unwrap(), value))
        };
        let one = |change: &Value| Change {
            what: text(&change["what"]).to_owned(),
            tree: text(&change["tree"]).to_owned(),
            key: stored(change, "key", "key_kind"),
            value: stored(change, "value", "value_kind"),
            existed: change.get("existed").and_then(Value::as_bool),
            renamed_to: change.get("renamed_to").map(|name| text(name).to_owned()),
        };
        list(commit).iter().map(one).collect()
    }
}

/// Returns the name of an error in the table.
pub fn status_of(error: &Error) -> &'static str {
    match error {
        Error::TreeInUse { .. } | Error::InUse { .. } | Error::PoolInUse { .. } => "in_use",
        Error::NoSuchTree { .. } | Error::NotFound { .. } => "absent",
        Error::Conflict => "conflict",
        Error::SnapshotTooOld => "snapshot_too_old",
        Error::ReadOnly => "read_only",
        Error::Mismatch { .. } | Error::Invalid { .. } | Error::TooLong { .. } | Error::TreeExists { .. } => {
            "usage"
        }
        other => panic!("an error that the table has no name for: {other}"),
    }
}

/// Converts a key or a value of the table.
fn datum(kind: &Kind, value: &Value) -> Datum<'static> {
    if let Some(other) = value.get("kind") {
        return datum(&text(other).parse().unwrap(), &value["datum"]);
    }
    macro_rules! numbers {
        ($($variant:ident)+) => {
            match kind {
                $(Kind::$variant => Datum::$variant(text(value).parse().unwrap()),)+
                _ => composed(kind, value),
            }
        };
    }
    numbers!(U8 U16 U32 U64 U128 I8 I16 I32 I64 I128)
}

fn composed(kind: &Kind, value: &Value) -> Datum<'static> {
    match kind {
        Kind::Unit => Datum::Unit,
        Kind::Bool => Datum::Bool(value.as_bool().unwrap()),
        Kind::Char => Datum::Char(text(value).parse().unwrap()),
        Kind::F32 => Datum::F32(
            bits(value).map_or_else(|| text(value).parse().unwrap(), |bits| f32::from_bits(bits as u32)),
        ),
        Kind::F64 => Datum::F64(bits(value).map_or_else(|| text(value).parse().unwrap(), f64::from_bits)),
        Kind::Str => Datum::Str(long(value).into()),
        Kind::Json => Datum::Json(long(value).into()),
        Kind::Postcard => Datum::Postcard(bytes(value).into()),
        Kind::Option(inner) => Datum::Option(list(value).first().map(|it| Box::new(datum(inner, it)))),
        Kind::Tuple(kinds) => {
            Datum::Tuple(kinds.iter().zip(list(value)).map(|(kind, it)| datum(kind, it)).collect())
        }
        Kind::Expiring(kind) => {
            let expiry = Expiry::from_millis(text(&value[0]).parse().unwrap());
            Datum::Expiring(Box::new(datum(kind, &value[1])), expiry)
        }
        _ => Datum::Bytes(bytes(value).into()),
    }
}

/// Returns the bits of a float that is written as such.
fn bits(value: &Value) -> Option<u64> {
    text(value).strip_prefix("0x").map(|digits| u64::from_str_radix(digits, 16).unwrap())
}

/// Returns a text, which may be written as a repetition.
fn long(value: &Value) -> String {
    match value.get("repeat") {
        Some(part) => text(part).repeat(value["times"].as_u64().unwrap() as usize),
        None => text(value).to_owned(),
    }
}

/// Returns bytes, which are written as hexadecimal digits.
fn bytes(value: &Value) -> Vec<u8> {
    let digits = long(value);
    (0..digits.len() / 2).map(|at| u8::from_str_radix(&digits[2 * at..2 * at + 2], 16).unwrap()).collect()
}
