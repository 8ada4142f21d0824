//! Operations on trees whose entries expire.

use bristlecone::dynamic::ExpiringTree;
use bristlecone::{Expiry, Result};
use bristlecone_matrix::conformance::{Gives, Outcome, Step};

use super::{DONE, bounds, found, held, lent, taken};

pub fn on_expiring(tree: &ExpiringTree, step: &Step) -> Result<Outcome> {
    let (keys, values) = (tree.entries().key_kind(), tree.value_kind());
    let key = || step.datum("key", keys).expect("a key");
    let value = || step.datum("value", values).expect("a value");
    let expires = step.expires();
    Ok(match step.operation() {
        "get" => found(tree.get(&key())?),
        "contains" => ("ok", Gives::Bool(tree.contains_key(&key())?)),
        "put" => {
            tree.upsert(&key(), &value(), expires)?;
            DONE
        }
        "exchange" => ("ok", held(tree.insert(&key(), &value(), expires)?)),
        "update" => found(tree.update(&key(), &value(), expires)?),
        "remove" => found(tree.remove(&key())?),
        "insert" => match tree.try_insert(&key(), &value(), expires) {
            Ok(()) => DONE,
            Err(present) => ("present", Gives::Datum(present.into_present()?)),
        },
        "compare_and_swap" => {
            let expires = expires.unwrap_or_else(|| tree.default_expiry());
            let (expected, wanted) = (step.datum("expected", values), step.datum("wanted", values));
            let wanted = wanted.as_ref().map(|wanted| (wanted, expires));
            match tree.compare_and_swap(&key(), expected.as_ref(), wanted) {
                Ok(()) => DONE,
                Err(differs) => ("differs", held(differs.into_found()?)),
            }
        }
        "scan" => taken(step, tree.range(lent(&bounds(step, keys))))?,
        "prefix" => {
            let bounds = tree.entries().prefix_bounds(&step.datum("prefix", keys).expect("a prefix"))?;
            taken(step, tree.range_within(&bounds))?
        }
        _ => times(tree, step)?,
    })
}

fn times(tree: &ExpiringTree, step: &Step) -> Result<Outcome> {
    let key = || step.datum("key", tree.entries().key_kind()).expect("a key");
    let time = |expiry: Option<Expiry>| {
        expiry.map_or(("absent", Gives::Nothing), |expiry| ("ok", Gives::Count(expiry.as_millis())))
    };
    Ok(match step.operation() {
        "expiry" => time(tree.expiry(&key())?),
        "set_expiry" => time(tree.set_expiry(&key(), step.expires())?),
        "expires_later" => {
            let than = step.number("than").expect("a time");
            ("ok", Gives::Bool(tree.expiry(&key())?.is_some_and(|expiry| expiry.as_millis() > than)))
        }
        "remove_expired" => {
            let pass = tree.remove_expired(step.number("budget").expect("a budget"))?;
            ("ok", Gives::Removal(pass.examined, pass.removed, pass.is_complete))
        }
        "expire_after" => {
            let millis = |time: std::time::Duration| Gives::Count(time.as_millis() as u64);
            ("ok", tree.expire_after().map_or(Gives::Nothing, millis))
        }
        other => panic!("an unknown operation: {other}"),
    })
}
