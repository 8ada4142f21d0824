//! The table that every language runs, for every design: see `bindings/conformance/README.md`.

use std::collections::BTreeMap;
use std::ops::Bound::{self, Excluded, Included, Unbounded};
use std::time::Duration;

use bristlecone::dynamic::{Datum, ExpiringTree, Item, Kind, Tree};
use bristlecone::{Changed, Design, Domain, Error, JournalChange, Pool, Result, Snapshot, Transaction};
use bristlecone_matrix::conformance::{self, Gives, Outcome, Step, cases, status_of};

use self::expiry::on_expiring;
use crate::common::{Scratch, share};

mod expiry;

#[test]
fn the_table_holds_for_every_design() {
    let cases =
        cases(&["changes", "clear_closed", "create_new", "nan_bits", "nested_options", "null_bounds"]);
    let runs = cases.iter().flat_map(|case| Design::ALL.iter().map(move |&design| (case, design)));
    let runs: Vec<_> = runs.collect();
    assert!(runs.len() >= 100 * Design::ALL.len(), "the table has only {} cases", cases.len());
    for (case, design) in share(runs) {
        let scratch = Scratch::new();
        let mut session = Session::new(&scratch, design, case.has_journal);
        for step in &case.steps {
            let outcome = session.run(step).unwrap_or_else(|error| (status_of(&error), Gives::Nothing));
            let kinds = step.optional_name("on").and_then(|name| session.kinds(name));
            step.expect(&outcome, kinds, &format!("{}, {}", case.name, design.name()));
        }
        session.end();
    }
}

/// The open objects of a case.
struct Session<'a> {
    scratch: &'a Scratch,
    design: Design,
    trees: BTreeMap<String, Tree>,
    expiring: BTreeMap<String, ExpiringTree>,
    transactions: BTreeMap<String, Transaction>,
    snapshots: BTreeMap<String, Snapshot>,
    pool: Option<Pool>,
}

const DONE: Outcome = ("ok", Gives::Nothing);

/// Returns the outcome of an operation that returns a value if there is one.
fn found(value: Option<Datum<'static>>) -> Outcome {
    value.map_or(("absent", Gives::Nothing), |value| ("ok", Gives::Datum(value)))
}

fn held(value: Option<Datum<'static>>) -> Gives {
    value.map_or(Gives::Nothing, Gives::Datum)
}

/// Returns the items of a scan, from the end and up to the number that a step says.
fn taken(step: &Step, items: impl DoubleEndedIterator<Item = Result<Item>>) -> Result<Outcome> {
    let items: Result<Vec<Item>> = match step.is_set("reverse") {
        true => items.rev().take(step.limit()).collect(),
        false => items.take(step.limit()).collect(),
    };
    Ok(("ok", Gives::Items(items?)))
}

type Bounds = (Bound<Datum<'static>>, Bound<Datum<'static>>);

fn lent((from, to): &Bounds) -> (Bound<&Datum<'_>>, Bound<&Datum<'_>>) {
    (from.as_ref(), to.as_ref())
}

fn bounds(step: &Step, kind: &Kind) -> Bounds {
    let bound = |argument, is_included: bool| match step.datum(argument, kind) {
        Some(key) if is_included => Included(key),
        Some(key) => Excluded(key),
        None => Unbounded,
    };
    (bound("from", !step.is_set("from_excluded")), bound("end", step.is_set("end_included")))
}

impl<'a> Session<'a> {
    fn new(scratch: &'a Scratch, design: Design, has_journal: bool) -> Self {
        let options = Pool::options().create(true).max_bytes(64 << 20);
        let options = if has_journal { options.domain(Domain::Journal) } else { options };
        let pool = Some(options.open(&scratch.0).unwrap());
        let (trees, expiring, transactions, snapshots) = Default::default();
        Self { scratch, design, trees, expiring, transactions, snapshots, pool }
    }

    fn pool(&self) -> &Pool {
        self.pool.as_ref().expect("an open pool")
    }

    fn tree(&self, step: &Step) -> &Tree {
        let name = step.name("on");
        self.trees.get(name).unwrap_or_else(|| panic!("the tree {name} is not open"))
    }

    /// Returns the kinds of keys and values of an open tree.
    fn kinds(&self, name: &str) -> Option<(&Kind, &Kind)> {
        let live = self.expiring.get(name).map(|tree| (tree.entries().key_kind(), tree.value_kind()));
        live.or_else(|| self.trees.get(name).map(|tree| (tree.key_kind(), tree.value_kind())))
    }

    fn end(&mut self) {
        self.expiring.clear();
        self.transactions.clear();
        self.snapshots.clear();
        for tree in std::mem::take(&mut self.trees).into_values() {
            assert!(tree.check().is_empty());
        }
        if let Some(pool) = self.pool.take() {
            assert!(pool.check().is_empty());
            pool.close().unwrap();
        }
    }

    fn run(&mut self, step: &Step) -> Result<Outcome> {
        if let Some(name) = step.optional_name("in") {
            return match self.transactions.get(name) {
                Some(transaction) => within(transaction, self.tree(step), step),
                None => then(&self.snapshots[name], self.tree(step), step),
            };
        }
        match step.operation() {
            "create" | "open" | "expiring" | "close" | "drop" | "rename" | "clear" | "trees" | "check"
            | "reopen" => self.manage(step),
            "batch" => self.batch(step),
            "changes" => commits(self.pool()),
            "begin" => {
                let begun = self.pool().begin_transaction()?;
                self.transactions.insert(step.name("as").to_owned(), begun);
                Ok(DONE)
            }
            "commit" => {
                self.transactions.remove(step.name("of")).expect("a transaction").commit().map(|()| DONE)
            }
            "rollback" => {
                drop(self.transactions.remove(step.name("of")).expect("a transaction"));
                Ok(DONE)
            }
            "snapshot" => {
                let taken = self.pool().snapshot()?;
                self.snapshots.insert(step.name("as").to_owned(), taken);
                Ok(DONE)
            }
            "release" => {
                drop(self.snapshots.remove(step.name("of")).expect("a snapshot"));
                Ok(DONE)
            }
            _ => match self.expiring.get(step.name("on")) {
                Some(tree) => on_expiring(tree, step),
                None => on_tree(self.tree(step), step),
            },
        }
    }

    fn manage(&mut self, step: &Step) -> Result<Outcome> {
        let name = step.optional_name("on").unwrap_or_default();
        match step.operation() {
            "create" => {
                let design = step.optional_name("design").map_or(Ok(self.design), str::parse)?;
                let (keys, values) = (step.name("key_kind").parse()?, step.name("value_kind").parse()?);
                let options = self.pool().tree_options(name).design(design);
                let options = match step.number("expire_after") {
                    Some(millis) => options.expire_after(Duration::from_millis(millis)),
                    None => options,
                };
                self.trees.insert(name.to_owned(), options.create_dynamic(&keys, &values)?);
            }
            "expiring" => {
                let tree = self.tree(step).clone().try_expiring()?;
                self.expiring.insert(step.name("as").to_owned(), tree);
            }
            "open" => {
                let tree = opened(self.pool(), step)?;
                self.trees.insert(name.to_owned(), tree);
            }
            "close" => {
                let closed = (self.expiring.remove(name), self.trees.remove(name));
                assert!(closed.0.is_some() || closed.1.is_some(), "the tree {name} is not open");
            }
            "drop" => self.pool().drop_tree(name)?,
            "rename" => self.pool().rename_tree(name, step.name("to"))?,
            "clear" => self.pool().clear_tree(name)?,
            "trees" => {
                let entries = self.pool().trees()?;
                let mut trees: Vec<_> = entries
                    .iter()
                    .map(|it| {
                        [&it.spec.name, &it.spec.key_kind, &it.spec.value_kind].map(|it| it.to_string())
                    })
                    .collect();
                trees.sort();
                return Ok(("ok", Gives::Trees(trees)));
            }
            "check" => {
                assert!(self.pool().check().is_empty());
                self.trees.values().for_each(|tree| assert!(tree.check().is_empty()));
            }
            _ => {
                self.end();
                self.pool = Some(Pool::options().read_only(step.is_set("read_only")).open(&self.scratch.0)?);
            }
        }
        Ok(DONE)
    }

    fn batch(&self, step: &Step) -> Result<Outcome> {
        let mut batch = self.pool().batch();
        for change in step.changes() {
            let tree = self.tree(&change);
            let key = change.datum("key", tree.key_kind()).expect("a key");
            let value = change.datum("value", tree.value_kind());
            match change.operation() {
                "put" => batch.insert(tree, &key, &value.expect("a value")),
                "remove" => batch.remove(tree, &key),
                _ => batch.expect(tree, &key, value.as_ref()),
            };
        }
        batch.commit().map(|()| DONE)
    }
}

/// Opens a tree, with the kinds that a step names.
fn opened(pool: &Pool, step: &Step) -> Result<Tree> {
    let tree = pool.dynamic_tree(step.name("on"))?;
    for (argument, kind) in [("key_kind", tree.key_kind()), ("value_kind", tree.value_kind())] {
        if let Some(asked) = step.optional_name(argument).filter(|asked| *asked != kind.to_string()) {
            return Err(Error::Mismatch {
                name: tree.name().to_owned(),
                what: "kinds of type",
                found: kind.to_string(),
                asked: asked.to_owned(),
            });
        }
    }
    Ok(tree)
}

fn commits(pool: &Pool) -> Result<Outcome> {
    let entry = |entry: Result<bristlecone::JournalEntry>| {
        entry?.changes()?.map(|change| change.map(change_of)).collect::<Result<Vec<_>>>()
    };
    Ok(("ok", Gives::Commits(pool.changes(0)?.map(entry).collect::<Result<_>>()?)))
}

fn change_of(JournalChange { tree, change, .. }: JournalChange) -> conformance::Change {
    let of = |what: &str| conformance::Change {
        what: what.to_owned(),
        tree: tree.spec.name.clone(),
        ..Default::default()
    };
    match change {
        Changed::Put { key, value, existed } => {
            conformance::Change { key: Some(key), value: Some(value), existed, ..of("put") }
        }
        Changed::Remove { key, existed } => conformance::Change { key: Some(key), existed, ..of("remove") },
        Changed::Create => of("create"),
        Changed::Drop => of("drop"),
        Changed::Clear { .. } => of("clear"),
        Changed::Rename { to } => conformance::Change { renamed_to: Some(to), ..of("rename") },
        other => panic!("a change without a name in the table: {other:?}"),
    }
}

fn on_tree(tree: &Tree, step: &Step) -> Result<Outcome> {
    let (keys, values) = (tree.key_kind(), tree.value_kind());
    let key = || step.datum("key", keys).expect("a key");
    let value = || step.datum("value", values).expect("a value");
    Ok(match step.operation() {
        "get" => found(tree.get(&key())?),
        "contains" => ("ok", Gives::Bool(tree.contains_key(&key())?)),
        "len" => ("ok", Gives::Count(tree.len()?)),
        "put" => {
            tree.upsert(&key(), &value())?;
            DONE
        }
        "exchange" => ("ok", held(tree.insert(&key(), &value())?)),
        "update" => found(tree.update(&key(), &value())?),
        "remove" => found(tree.remove(&key())?),
        "insert" => match tree.try_insert(&key(), &value()) {
            Ok(()) => DONE,
            Err(present) => ("present", Gives::Datum(present.into_present()?)),
        },
        "compare_and_swap" => {
            let (expected, wanted) = (step.datum("expected", values), step.datum("wanted", values));
            match tree.compare_and_swap(&key(), expected.as_ref(), wanted.as_ref()) {
                Ok(()) => DONE,
                Err(differs) => ("differs", held(differs.into_found()?)),
            }
        }
        "scan" => taken(step, tree.range(lent(&bounds(step, keys))))?,
        "remove_range" => ("ok", Gives::Count(tree.remove_range(lent(&bounds(step, keys)))?)),
        "remove_prefix" => {
            let bounds = tree.prefix_bounds(&step.datum("prefix", keys).expect("a prefix"))?;
            ("ok", Gives::Count(tree.remove_within(&bounds)?))
        }
        "prefix" => taken(step, tree.prefix(&step.datum("prefix", keys).expect("a prefix")))?,
        other => many(tree, step, other)?,
    })
}

fn many(tree: &Tree, step: &Step, operation: &str) -> Result<Outcome> {
    let keys = step.data("keys", tree.key_kind());
    let keys: Vec<_> = keys.iter().collect();
    match operation {
        "get_many" => {
            let mut found = Vec::new();
            tree.get_many(&keys, &mut found)?;
            return Ok(("ok", Gives::Data(found)));
        }
        "put_many" => {
            let items = step.items("items", (tree.key_kind(), tree.value_kind()));
            let items: Vec<_> = items.iter().map(|(key, value)| (key, value)).collect();
            tree.upsert_many(&items).map_err(Error::from)?;
        }
        "remove_many" => tree.remove_many(&keys, &mut Vec::new()).map_err(Error::from)?,
        other => panic!("an unknown operation: {other}"),
    }
    Ok(DONE)
}

fn within(transaction: &Transaction, tree: &Tree, step: &Step) -> Result<Outcome> {
    let key = || step.datum("key", tree.key_kind()).expect("a key");
    match step.operation() {
        "get" => Ok(found(transaction.get(tree, &key())?)),
        "put" => transaction
            .insert(tree, &key(), &step.datum("value", tree.value_kind()).expect("a value"))
            .map(|()| DONE),
        "remove" => transaction.remove(tree, &key()).map(|()| DONE),
        "scan" => {
            let range = transaction.range(tree, lent(&bounds(step, tree.key_kind())));
            taken(step, range)
        }
        other => panic!("an unknown operation of a transaction: {other}"),
    }
}

fn then(snapshot: &Snapshot, tree: &Tree, step: &Step) -> Result<Outcome> {
    let seen = snapshot.tree(tree);
    match step.operation() {
        "get" => Ok(found(seen.get(&step.datum("key", tree.key_kind()).expect("a key"))?)),
        "scan" => taken(step, seen.range(lent(&bounds(step, tree.key_kind())))),
        other => panic!("an unknown operation of a snapshot: {other}"),
    }
}
