//! The table of all designs: a new one needs a line here and a folder beside this file.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use bristlecone_pm::{Error, LINE_BYTES, Medium, Part, PoolFile, Result, SlotKind, TreeSpec};

use super::designs::{cclbtree, lodgetree, nbtree, sstree, wotree};
use super::of_keys::OfKeys;
use super::options::{OptionInfo, PARAMS, Parameters};
use super::{Described, Open, Salvage, SalvageSink};
use crate::index::parts::codec::KeyCodec;

macro_rules! designs {
    ($($(#[$doc:meta])* $design:ident = $code:literal, $feature:literal, $module:ident: $tree:ident, $options:ident;)+) => {
        /// A design of a tree, from a published paper.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Design { $($(#[$doc])* $design,)+ }

        impl Design {
            /// Every design, compiled or not.
            pub const ALL: &[Self] = &[$(Self::$design,)+];

            /// Returns whether this build contains the design: each has a feature of its name.
            pub const fn is_compiled(self) -> bool {
                match self { $(Self::$design => cfg!(feature = $feature),)+ }
            }

            /// The code in the directory.
            pub(crate) fn code(self) -> u32 {
                match self { $(Self::$design => $code,)+ }
            }

            /// Returns the name, as used in arguments and reports.
            pub fn name(self) -> &'static str {
                match self { $(Self::$design => $module::$options::DESIGN,)+ }
            }

            /// Returns the options that its trees can be created with in this build.
            pub fn options(self) -> impl Iterator<Item = &'static OptionInfo> {
                let all = match self { $(Self::$design => $module::$options::OPTIONS,)+ };
                all.iter().filter(|option| option.is_compiled())
            }

            /// Returns the parameters as words: defaults, overridden by the given names and values.
            pub(crate) fn parse(self, given: &[(String, u64)]) -> Result<[u64; PARAMS]> {
                match self { $(Self::$design => Ok($module::$options::parse(given)?.to_words()),)+ }
            }

            /// Returns the parameters of a tree by name, from the directory.
            ///
            /// # Errors
            ///
            /// [`Error::Newer`] for a design that this version does not know, [`Error::Invalid`] for invalid
            /// parameters.
            pub fn options_of(tree: &TreeSpec) -> Result<Vec<(&'static str, u64)>> {
                Ok(match Options::of(tree)? { $(Options::$design(options) => options.named(),)+ })
            }
        }

        /// The options of a tree, by its design.
        #[allow(clippy::enum_variant_names, reason = "they are the names of designs")]
        enum Options { $($design($module::$options),)+ }

        impl Options {
            /// Returns the options of a tree, from the directory.
            fn of(tree: &TreeSpec) -> Result<Self> {
                match Design::of(tree)? {
                    $(Design::$design => $module::$options::from_words(tree.params).map(Self::$design),)+
                }
            }
        }

        /// Opens the tree of an entry: resumes the index saved when it was closed, or recovers it after a crash.
        pub(super) fn open<K: KeyCodec, M: Medium>(
            pool: &Arc<PoolFile<M>>,
            entry: Described<'_>,
            threads: usize,
        ) -> Result<OfKeys<K>> {
            match Design::of(&entry.spec)? {
                $(Design::$design if cfg!(feature = $feature) => {
                    let options = $module::$options::from_words(entry.spec.params)?;
                    let kept = pool.resume_tree(entry.id, |manifest| {
                        $module::$tree::<K, M>::resume(pool, entry, options, manifest)
                    });
                    let kept = kept.or_else(|| pool.recover_tree(entry.id, |manifest| {
                        $module::$tree::<K, M>::take_over(pool, entry, options, manifest)
                    }));
                    let tree = kept.map_or_else(|| Open::open(pool, entry, options, threads), Ok)?;
                    pool.share_tree(entry.id, |manifest| tree.share(manifest));
                    Ok(OfKeys::new(tree, entry.values))
                })+
                absent => Err(absent.not_compiled()),
            }
        }

        /// Opens the tree of an entry as shared by the pool's writer, with the number of its state; returns `None`
        /// if the writer does not have it open.
        pub(super) fn follow<K: KeyCodec, M: Medium>(
            pool: &Arc<PoolFile<M>>,
            entry: Described<'_>,
        ) -> Result<Option<(u64, OfKeys<K>)>> {
            Ok(match Design::of(&entry.spec)? {
                $(Design::$design if cfg!(feature = $feature) => {
                    let options = $module::$options::from_words(entry.spec.params)?;
                    let followed = pool.follow_tree(entry.id, |manifest| {
                        $module::$tree::<K, M>::resume(pool, entry, options, manifest)
                    });
                    followed.map(|(number, tree)| (number, OfKeys::new(tree, entry.values)))
                })+
                absent => return Err(absent.not_compiled()),
            })
        }

        /// Salvages the readable contents of the tree of an entry.
        pub fn salvage<K: KeyCodec, M: Medium>(
            pool: &Arc<PoolFile<M>>,
            entry: Described<'_>,
            sink: &mut SalvageSink<'_, K>,
        ) -> Result<()> {
            match Design::of(&entry.spec)? {
                $(Design::$design if cfg!(feature = $feature) => {
                    let options = $module::$options::from_words(entry.spec.params)?;
                    $module::$tree::<K, M>::salvage(pool, entry, options, sink)
                })+
                absent => Err(absent.not_compiled()),
            }
        }
    };
}

designs! {
    /// SSTree: leaves that grow by subnodes.
    SsTree = 1, "sstree", sstree: SsTree, SsTreeOptions;
    /// NBTree: lock-free leaves, one line per operation.
    NbTree = 2, "nbtree", nbtree: NbTree, NbTreeOptions;
    /// CCL-BTree: buffers at the leaves, a log in sequence.
    CclBTree = 3, "cclbtree", cclbtree: CclBTree, CclBTreeOptions;
    /// LodgeTree: the buffer lodges in the last-level inner nodes.
    LodgeTree = 4, "lodgetree", lodgetree: LodgeTree, LodgeTreeOptions;
    /// WO-tree: everything in persistent memory, few flushes.
    WoTree = 5, "wotree", wotree: WoTree, WoTreeOptions;
}

impl Default for Design {
    /// Returns NBTree, or the first design of a build without it.
    fn default() -> Self {
        let preferred = [Self::NbTree].iter().chain(Self::ALL);
        let compiled = preferred.copied().find(|design| design.is_compiled());
        compiled.expect("a build without designs does not compile")
    }
}

#[cfg(not(any(
    feature = "sstree",
    feature = "nbtree",
    feature = "cclbtree",
    feature = "lodgetree",
    feature = "wotree"
)))]
compile_error!("choose a design: one of the features sstree, nbtree, cclbtree, lodgetree, wotree");

impl Design {
    /// Returns the error for opening a tree whose design is not part of this build.
    #[cold]
    fn not_compiled(self) -> Error {
        Error::invalid(format!("design {self} is not part of this build: enable the feature {self}"))
    }

    /// Returns the design of a tree, from the directory.
    ///
    /// # Errors
    ///
    /// [`Error::Newer`] if this version does not know it.
    pub fn of(tree: &TreeSpec) -> Result<Self> {
        let found = Self::ALL.iter().find(|design| design.code() == tree.design);
        found.copied().ok_or_else(|| Error::Newer { needs: format!("tree design {}", tree.design) })
    }
}

impl Design {
    /// Returns the slot kinds of a tree, with their sizes where these are fixed.
    pub(crate) fn slots(tree: &TreeSpec) -> Result<Vec<(SlotKind, Option<u64>)>> {
        let log = (SlotKind::LOG, None);
        let mut slots = vec![(SlotKind::KEY_RECORD, None), (SlotKind::VALUE_RECORD, None)];
        match Options::of(tree)? {
            Options::SsTree(options) => slots.push((sstree::layout::SUBNODES, Some(options.subnode_bytes))),
            Options::NbTree(options) => slots.push((nbtree::layout::BLOCKS, Some(options.block_bytes))),
            Options::CclBTree(_) => {
                slots.extend([(cclbtree::layout::LEAVES, Some(cclbtree::layout::LEAF_BYTES)), log])
            }
            Options::LodgeTree(options) => {
                let leaf_bytes = lodgetree::layout::leaf_bytes(options.leaf_slots as usize) as u64;
                slots.extend([(lodgetree::layout::LEAVES, Some(leaf_bytes)), log]);
            }
            Options::WoTree(options) => slots.extend([
                (wotree::layout::NODES, Some(options.node_lines * LINE_BYTES as u64)),
                (wotree::layout::LOGS, None),
                (wotree::layout::SEPARATORS, None),
            ]),
        }
        Ok(slots)
    }

    /// Returns the maximum bytes of leaves that a write of one item may allocate for splits and copies.
    pub(crate) fn split_bytes(tree: &TreeSpec) -> Result<u64> {
        Ok(match Options::of(tree)? {
            Options::SsTree(options) => options.max_subnodes * options.subnode_bytes,
            // Two blocks for a leaf that is being replaced, and its replacement may be split.
            Options::NbTree(options) => 4 * options.block_bytes,
            Options::CclBTree(_) => 2 * cclbtree::layout::LEAF_BYTES,
            // A flushed node has items of several leaves.
            Options::LodgeTree(options) => {
                let leaf_bytes = lodgetree::layout::leaf_bytes(options.leaf_slots as usize) as u64;
                options.node_slots * leaf_bytes
            }
            // Includes its share of the inner nodes.
            Options::WoTree(options) => 2 * options.node_lines * LINE_BYTES as u64,
        })
    }
}

/// Returns the purpose of slots of a kind, or `None` if no design has such slots.
pub fn part_of(kind: SlotKind) -> Option<Part> {
    const LEAVES: [SlotKind; 5] = [
        sstree::layout::SUBNODES,
        nbtree::layout::BLOCKS,
        cclbtree::layout::LEAVES,
        lodgetree::layout::LEAVES,
        wotree::layout::NODES,
    ];
    const LOGS: [SlotKind; 2] = [SlotKind::LOG, wotree::layout::LOGS];
    const RECORDS: [SlotKind; 3] = [SlotKind::KEY_RECORD, SlotKind::VALUE_RECORD, wotree::layout::SEPARATORS];
    let kinds = [(&LEAVES[..], Part::Leaf), (&LOGS, Part::Log), (&RECORDS, Part::Other)];
    kinds.into_iter().find(|(of_part, _)| of_part.contains(&kind)).map(|(_, part)| part)
}

impl fmt::Display for Design {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Design {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        let found = Self::ALL.iter().find(|design| design.name() == name);
        found.copied().ok_or_else(|| {
            let known: Vec<_> = Self::ALL.iter().map(|design| design.name()).collect();
            let known = known.join(", ");
            Error::invalid(format!("unknown design {name:?}; expected one of {known}"))
        })
    }
}
