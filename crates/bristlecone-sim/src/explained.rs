//! Mutations that nothing can notice, each with the reason.

/// How the mutation is told, up to its place, and why it changes nothing.
const EXPLAINED: &[(&str, &str)] = &[
    (
        "lose publish \"sstree split.1 overflow\"",
        "a linked subnode with items and a free tag is one whose reclamation was interrupted: recovery ends the chain there",
    ),
    (
        "swap publish \"wotree commit.2 second\"",
        "of the two words of a bitmap one changes, but for a split, which is logged",
    ),
    ("lose publish \"wbtree mend.2\"", "no flush follows it: the next recovery does the same once more"),
];

/// Returns why nothing can notice a mutation, if that is known.
pub(crate) fn reason(mutation: &str) -> Option<&'static str> {
    EXPLAINED.iter().find(|(known, _)| mutation.starts_with(known)).map(|(_, reason)| *reason)
}
