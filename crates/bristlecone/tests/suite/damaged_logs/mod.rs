//! The designs with logs, word by word. Whatever is stored in a word of a leaf or of a log, opening returns an error
//! or the correct items. Where the format has no check, the items may differ by that word's. Damage of a log is never
//! ignored, and loses no more than necessary.

mod victim;

use self::victim::{CHUNK, Codec, ENTRY, KEYS, Part, Place, Texts, Victim, Words, fill, fill_and_turn};
use bristlecone_matrix::{TestLevel, takes};

use crate::common::{CONFIGURATIONS, Configuration, Noise, Plant, share};
use bristlecone::{Design, Error};

/// Number of words in use that a log must have to be tried.
const LOG_WORDS: usize = 30;

/// Prints the current attempt on a panic.
struct Trying(String);

impl Drop for Trying {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("while trying {}", self.0);
        }
    }
}

fn logged() -> impl Iterator<Item = Configuration> {
    CONFIGURATIONS
        .iter()
        .copied()
        .filter(|shape| [Design::CclBTree, Design::LodgeTree].contains(&shape.design))
}

fn logged_shapes() -> Vec<Configuration> {
    share(logged())
}

/// Those of a day that have logs.
fn shapes_with_logs() -> Vec<Configuration> {
    share(logged().filter(|shape| !shape.options.contains(&("batch", 0))))
}

/// Stores all values in all places, and restores them.
fn try_all(victim: &Victim, places: &[Place], mut verify: impl FnMut(Place, bool, &str)) {
    let mut noise = Noise(0x9e37_79b9_7f4a_7c15);
    for place in places {
        let before = victim.word(place.at);
        for (value, is_flip) in victim.values(*place, &mut noise) {
            let trying = Trying(format!("{:?} {place:x?}: {before:#x} -> {value:#x}", victim.shape));
            victim.put(place.at, value);
            verify(*place, is_flip, &trying.0);
            victim.put(place.at, before);
        }
    }
}

fn logs_of<C: Codec>() {
    let (mut tried, mut replaced, mut unseen) = (0, 0, 0);
    for shape in shapes_with_logs() {
        // A collector's thread may have emptied most of the log at the end.
        let mut logs = (0..20).map(|_| fill::<C>(shape)).map(|victim| (victim.logged(), victim));
        let long = logs.find(|(places, _)| places.len() >= LOG_WORDS);
        let (places, victim) = long.unwrap_or_else(|| panic!("{shape:?} has no long log"));
        try_all(&victim, &places, |place, is_flip, what| {
            tried += 1;
            replaced += usize::from(!is_flip);
            let answer = match victim.ask::<C>() {
                Ok(answer) => answer,
                Err(Error::Corrupted { .. }) => return,
                Err(error) => panic!("{what}: {error}"),
            };
            let right = victim.differences(&answer.items) == 0 && answer.missed == 0 && answer.issues == 0;
            let checked = matches!(place.part, Part::Entry { .. });
            let told = is_flip && (checked || place.part == Part::Header && place.word == 0);
            assert!(!told, "nothing was told of {what}");
            if !right {
                // One of 64 checks is valid by chance, and the last entry may look like none.
                assert!(!is_flip && checked, "{what}");
                unseen += 1;
            }
        });
    }
    println!("{tried} words, {replaced} of them more than a flipped bit, of which {unseen} went unseen");
    // A day's sample may have few logs, of which more than their share may be valid by chance.
    assert!(tried > 500, "{tried}");
    assert!(unseen * 40 < replaced + 400, "{unseen} of {replaced} went unseen");
}

#[test]
fn damaged_logs_of_words_are_told() {
    logs_of::<Words>();
}

#[test]
fn damaged_logs_of_texts_are_told() {
    logs_of::<Texts>();
}

fn leaves_of<C: Codec>() {
    let (mut tried, mut refused, mut wrong) = (0, 0, 0);
    for shape in logged_shapes() {
        let victim = fill::<C>(shape);
        // The links to other leaves, and the words that show which log entries were merged.
        let (links, stamp, tags) =
            if shape.design == Design::CclBTree { (0..1, 1, 2..4) } else { (0..3, 3, 4..8) };
        try_all(&victim, &victim.leaves(), |place, _, what| {
            tried += 1;
            let answer = match victim.ask::<C>() {
                Ok(answer) => answer,
                Err(Error::Corrupted { .. }) => {
                    refused += 1;
                    return;
                }
                Err(error) => panic!("{what}: {error}"),
            };
            let differ = victim.differences(&answer.items).max(answer.missed);
            wrong += usize::from(differ > 0);
            let most = match place.word {
                word if links.contains(&word) => usize::MAX,
                word if tags.contains(&word) => 0,
                // Unmerged entries are lost, and merged ones are applied again.
                word if word == stamp => 60,
                // A fence is wrong, and that is reported.
                _ if answer.issues > 0 => usize::MAX,
                _ => 2,
            };
            assert!(differ <= most, "{differ} items are wrong: {what}");
        });
    }
    println!("{tried} words: {refused} times refused, {wrong} times wrong items");
    assert!(refused > 0);
}

#[test]
fn damaged_leaves_of_words_are_told() {
    leaves_of::<Words>();
}

#[test]
fn damaged_leaves_of_texts_are_told() {
    leaves_of::<Texts>();
}

/// Superseded records, which pending entries replace, hide a missing one from a count; so the references are
/// compared.
#[test]
fn two_items_cannot_name_one_record() {
    for shape in logged_shapes() {
        let victim = fill::<Texts>(shape);
        let (first, slots) = if shape.design == Design::CclBTree { (4, 0x3fff) } else { (10, 0x7ff_ffff) };
        let mut tried = 0;
        for Place { at, word, .. } in victim.leaves() {
            let leaf = at - 8 * word;
            let taken = |slot: u64| victim.word(leaf) & slots & 1 << slot != 0;
            if word < first || (word - first) % 2 == 0 {
                continue;
            }
            let slot = (word - first) / 2;
            let Some(other) = (0..slot).find(|other| taken(slot) && taken(*other)) else { continue };
            let (before, value) = (victim.word(at), victim.word(leaf + 8 * (first + 1 + 2 * other)));
            victim.put(at, value);
            match victim.ask::<Texts>() {
                Err(Error::Corrupted { .. }) => tried += 1,
                Err(error) => panic!("{shape:?}: {before:#x} -> {value:#x} at {at:#x}: {error}"),
                // A leaf that is not in the chain.
                Ok(answer) => assert!(
                    victim.differences(&answer.items) == 0 && answer.missed == 0,
                    "{shape:?}: {before:#x} -> {value:#x} at {at:#x} is not told"
                ),
            }
            victim.put(at, before);
        }
        assert!(tried > 0 || shape.options.contains(&("batch", 0)), "{shape:?} has no leaf of two items");
    }
}

/// Whatever part of a log is damaged, everything before and behind it is saved.
fn saved_from_logs_of<C: Codec>() {
    for shape in logged_shapes() {
        let victim = fill::<C>(shape);
        for place in victim.logged().into_iter().step_by(4) {
            if matches!(place.part, Part::End { .. }) {
                continue;
            }
            let before = victim.word(place.at);
            let trying = Trying(format!("{shape:?} {place:x?}"));
            victim.put(place.at, before ^ 0x10);
            let (salvage, items) = victim.salvage::<C>();
            victim.put(place.at, before);
            let (differ, lost) = (victim.differences(&items), salvage.items().1);
            match place.part {
                Part::Entry { .. } => {
                    let mut issues = salvage.trees.iter().flat_map(|tree| &tree.issues);
                    let told = issues.any(|issue| issue.what.contains("1 entries are lost"));
                    assert!(
                        !salvage.is_whole() && told && lost == 1 && differ <= 1,
                        "{differ} {} {salvage:?}",
                        trying.0
                    );
                }
                _ => {
                    assert!(differ == 0 && lost == 0 && salvage.is_whole() == (place.word > 0), "{salvage:?}")
                }
            }
        }
    }
}

#[test]
fn all_but_the_damaged_entry_is_saved() {
    saved_from_logs_of::<Words>();
    saved_from_logs_of::<Texts>();
}

/// Stands for the leaf's own offset.
const ITSELF: u64 = 0;

/// A leaf that links to nothing, or to itself, loses at most the items of leaves that are lost anyway.
fn saved_from_leaves_of<C: Codec>(
    configurations: Vec<Configuration>,
    fill: fn(Configuration) -> Victim,
    leaves: fn(&Victim) -> Vec<u64>,
    targets: &[u64],
) {
    for shape in configurations {
        let victim = fill(shape);
        let (salvage, items) = victim.salvage::<C>();
        assert!(salvage.is_whole() && items == victim.truth, "{salvage:?}");
        let (links, shift): (&[u64], _) =
            if shape.design == Design::CclBTree { (&[0], 16) } else { (&[1, 2], 0) };
        for leaf in leaves(&victim) {
            for target in targets.iter().map(|&target| if target == ITSELF { leaf } else { target }) {
                let places: Vec<_> = links.iter().map(|link| leaf + link * 8).collect();
                let before: Vec<_> = places.iter().map(|at| victim.word(*at)).collect();
                let trying = Trying(format!("{shape:?}: leaf {leaf:#x} leads to {target:#x}"));
                for (at, before) in places.iter().zip(&before) {
                    victim.put(*at, before & ((1 << shift) - 1) | target << shift);
                }
                let asked = victim.ask::<C>();
                let (salvage, items) = victim.salvage::<C>();
                places.iter().zip(&before).for_each(|(at, before)| victim.put(*at, *before));
                let Err(Error::Corrupted { .. }) = asked else {
                    // A leaf of another tree.
                    assert_eq!(items, victim.truth);
                    continue;
                };
                let missing = victim.truth.iter().filter(|(key, _)| !items.contains_key(key)).count();
                let differ = victim.differences(&items);
                assert!(
                    !salvage.is_whole() && missing == 0 && differ <= 20,
                    "{missing} {differ} {}",
                    trying.0
                );
            }
        }
    }
}

#[test]
fn a_broken_chain_is_joined_again() {
    let some =
        |victim: &Victim| victim.leaves().iter().filter(|word| word.word == 0).map(|word| word.at).collect();
    let targets = [1 << 40, ITSELF, 24];
    saved_from_leaves_of::<Words>(logged_shapes(), fill::<Words>, some, &targets);
    saved_from_leaves_of::<Texts>(logged_shapes(), fill::<Texts>, some, &targets);
}

#[test]
fn a_broken_chain_is_joined_again_without_the_log() {
    // A collector's thread makes each run different: these runs are longer, too.
    let repeats = |shape: &Configuration| {
        shape.design != Design::CclBTree || shape.option("collector_threads") == Some(0)
    };
    let with_threads = takes(TestLevel::Ci, "broken chains of trees with a collector's thread");
    let is_short = |shape: &Configuration| shape.option("log_entries").is_some_and(|entries| entries <= 500);
    let short = || logged().filter(|shape| is_short(shape) && (with_threads || repeats(shape)));
    for design in [Design::CclBTree, Design::LodgeTree] {
        let of_design = || share(short().filter(|shape| shape.design == design));
        saved_from_leaves_of::<Words>(of_design(), fill_and_turn::<Words>, Victim::all_leaves, &[1 << 40]);
        saved_from_leaves_of::<Texts>(of_design(), fill_and_turn::<Texts>, Victim::all_leaves, &[1 << 40]);
    }
}

/// Logs of versions before entries had checks are readable as before.
fn old_logs_of<C: Codec>() {
    for shape in logged_shapes() {
        let victim = fill::<C>(shape);
        for (chunk, _) in victim.chunks(9) {
            let (slots, generation) = (victim.slots(chunk), 200 + chunk / CHUNK);
            for slot in 1..slots {
                let stamp = victim.word(chunk + slot * ENTRY);
                let sequence = stamp << 6 >> 15;
                victim.put(chunk + slot * ENTRY, stamp & 1 | generation << 1 | sequence << 9);
            }
            victim.put(chunk + slots * ENTRY, (generation - 1) << 1);
            victim.put(chunk, generation);
            victim.put(chunk + 8, 0x1234);
        }
        let answer = victim.ask::<C>().unwrap();
        assert_eq!((&answer.items, answer.missed, answer.issues), (&victim.truth, 0, 0), "{shape:?}");
        let (salvage, items) = victim.salvage::<C>();
        assert!(salvage.is_whole() && items == victim.truth, "{shape:?}: {salvage:?}");
        // New entries have checks.
        let pool = victim.scratch.open();
        let tree = shape.open::<C::Key, C::Value>(&pool, "t").unwrap();
        let mut truth = victim.truth.clone();
        for n in 0..2 * KEYS {
            let key = (n % KEYS).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
            C::put(&tree, key, n);
            truth.insert(key, n);
        }
        drop(tree);
        pool.close().unwrap();
        let answer = victim.ask::<C>().unwrap();
        assert_eq!((&answer.items, answer.issues), (&truth, 0), "{shape:?}");
    }
}

#[test]
fn logs_without_checks_are_read() {
    old_logs_of::<Words>();
    old_logs_of::<Texts>();
}
