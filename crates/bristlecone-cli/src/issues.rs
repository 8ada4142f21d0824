//! Issues of a pool as text and as JSON.

use std::collections::BTreeMap;

use bristlecone::Issue;
use bristlecone_cli::output::counted;
use serde_json::{Value, json};

/// Returns the object of an issue of a tree, or of the pool.
pub fn object(tree: Option<&str>, Issue { location, what, .. }: &Issue) -> Value {
    json!({ "tree": tree, "location": location, "what": what })
}

/// Returns the description in an error, without its advice, which is printed once.
pub fn without_advice(what: &str) -> &str {
    what.split("; `bristlecone check --repair`").next().unwrap_or(what)
}

/// Returns a line for each issue. Many issues of one kind become a few locations and the number of the others.
pub fn summed_up<'a>(issues: impl Iterator<Item = (Option<&'a str>, &'a Issue)>) -> Vec<String> {
    const SHOWN: usize = 3;
    let mut places: BTreeMap<(Option<&str>, String), Vec<&str>> = BTreeMap::new();
    for (tree, Issue { location, what, .. }) in issues {
        places.entry((tree, without_advice(what).to_owned())).or_default().push(location);
    }
    let line = |((tree, what), places): ((Option<&str>, String), Vec<&str>)| {
        let tree = tree.map(|tree| format!("{tree}: ")).unwrap_or_default();
        let more = match places.len() {
            0..=SHOWN => String::new(),
            all => format!(
                " and at {} (--json lists them)",
                counted((all - SHOWN) as u64, "other place", "other places")
            ),
        };
        format!("{tree}{what} at {}{more}", places[..places.len().min(SHOWN)].join(", "))
    };
    places.into_iter().map(line).collect()
}
