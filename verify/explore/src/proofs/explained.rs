//! Undetectable mutations, each with the reason.

use bristlecone_baselines::UNNOTICED;
use bristlecone_sim::Explanation;

/// The printed form of the mutation, without its location; the number of such mutations; and the
/// reason why they have no effect.
pub const EXPLAINED: &[Explanation] = &{
    let mut all = [("", 0, ""); OF_LIBRARY.len() + UNNOTICED.len()];
    let mut at = 0;
    while at < all.len() {
        let of_library = at < OF_LIBRARY.len();
        all[at] = if of_library { OF_LIBRARY[at] } else { UNNOTICED[at - OF_LIBRARY.len()] };
        at += 1;
    }
    all
};

const OF_LIBRARY: &[Explanation] = &[
    (
        "lose publish \"pool commit.4\"",
        1,
        "not shown: the two records of a batch that was attempted without room would have to lie in different chunks of the log",
    ),
    (
        "swap publish \"pool commit.4\"",
        1,
        "not shown: the two records of a batch that was attempted without room would have to lie in different chunks of the log",
    ),
    (
        "remove flush \"pool commit.4\"",
        1,
        "not shown: the two records of a batch that was attempted without room would have to lie in different chunks of the log",
    ),
    (
        "shift flush \"pool commit.4\"",
        1,
        "not shown: the two records of a batch that was attempted without room would have to lie in different chunks of the log",
    ),
    (
        "remove fence \"pool commit.4\"",
        1,
        "not shown: the two records of a batch that was attempted without room would have to lie in different chunks of the log",
    ),
    (
        "swap publish \"fptree create\"",
        1,
        "nothing goes through micro-logs before the tree has its first leaf",
    ),
    (
        "lose publish \"sstree split.1 overflow\"",
        1,
        "a linked subnode with items and a free tag is one whose reclamation was interrupted: recovery ends the chain there",
    ),
    (
        "remove flush \"sstree recover.3\"",
        1,
        "not shown: another thread would have to crash while it uses the head again that recovery has freed",
    ),
    (
        "shift flush \"sstree recover.3\"",
        1,
        "not shown: another thread would have to crash while it uses the head again that recovery has freed",
    ),
    (
        "remove fence \"sstree recover.3\"",
        1,
        "not shown: another thread would have to crash while it uses the head again that recovery has freed",
    ),
    (
        "remove fence \"sstree recover.2\"",
        1,
        "not shown: another thread would have to crash while it uses the tail again that recovery has freed",
    ),
    (
        "lose store at sstree/write.rs",
        1,
        "where items are staged, a slot that is written alone holds the same key already",
    ),
    (
        "lose publish \"lodgetree merge.3\"",
        1,
        "not shown: the leaf that a merge gives back would have to be used again before its left neighbour is written",
    ),
    (
        "lose publish \"lodgetree split.2 stamp\"",
        1,
        "log entries that stay are of removals that the bitmap has done; done again they change nothing",
    ),
    (
        "swap publish \"wotree commit.2 second\"",
        1,
        "of the two words of a bitmap one changes, but for a split, which is logged",
    ),
    (
        "lose store at pool/directory.rs",
        1,
        "opening frees the chunks of an entry that is free as it does those of one that is being dropped",
    ),
    (
        "lose compare-and-swap at nbtree/split.rs",
        1,
        "seals are for threads: after a crash the old block is the leaf",
    ),
    (
        "lose compare-and-swap at nbtree/link.rs",
        1,
        "seals are for threads: after a crash the empty block is the leaf",
    ),
    (
        "swap compare-and-swap at nbtree/link.rs",
        1,
        "seals are for threads: after a crash the empty block is the leaf",
    ),
    (
        "remove order at wotree/inner.rs",
        2,
        "an entry that comes or goes has its neighbour's child, or a key greater than all: each alone is enough",
    ),
    ("lose store at wotree/inner.rs", 1, "a key without a child is overwritten before its child comes"),
    ("remove order at wotree/split.rs", 1, "the cut is done again as long as the log names the split"),
    ("lose store at wotree/split.rs", 1, "a key without a child is overwritten before its child comes"),
    (
        "remove order at wotree/log.rs",
        1,
        "half a record under the name of a rebuild has a leaf rebuilt that needs none",
    ),
    (
        "lose store at wotree/log.rs",
        1,
        "half a record under the name of a rebuild has a leaf rebuilt that needs none",
    ),
];
