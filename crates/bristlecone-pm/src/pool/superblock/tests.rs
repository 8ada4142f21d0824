//! The combination of two copies, and pools that this version refuses.

use super::super::layout::SUPERBLOCK_WORDS;
use super::*;

const CONTENTS: Contents = Contents {
    uuid: [3, 4],
    geometry: Geometry { chunk_bytes: 1 << 21, chunks_max: 64, trees_max: 16 },
    sequence: 8,
    domain: Domain::Adr,
    clean: true,
    seal: 0,
    intent: false,
    commits: false,
    pages: false,
};

/// Returns a superblock in which one word is different, with its checksum.
fn with(at: usize, word: u64) -> Superblock<u64> {
    let mut words = CONTENTS.to_superblock().words();
    words[at] = word;
    Superblock::from_words(words).sealed()
}

fn of(word: impl Into<Option<(usize, u64)>>, access: Access) -> Result<Contents> {
    let words = word.into().map_or(CONTENTS.to_superblock(), |(at, word)| with(at, word));
    Contents::of([words, words], access).map(|(contents, _)| contents)
}

#[test]
fn the_format_is_golden() {
    let words = CONTENTS.to_superblock().words();
    let magic = u64::from_le_bytes(*b"BRISTLEC");
    assert_eq!(words, [magic, 1, 0, 1, 0, 3, 4, 1 << 21, 64, 16, 8, 0x101, 0xe86cc9fd]);
    assert_eq!(Superblock::from_words(words), CONTENTS.to_superblock());
}

#[test]
fn every_domain_and_state_comes_back() {
    for domain in [Domain::Process, Domain::Adr, Domain::Eadr, Domain::Msync, Domain::Journal] {
        for clean in [false, true] {
            let contents = Contents { domain, clean, ..CONTENTS };
            assert_eq!(parse(&contents.to_superblock(), Access::Write).unwrap(), contents);
        }
    }
    assert!(
        matches!(of((11, 4), Access::Write), Err(Error::Corrupted { .. })),
        "a journal without its feature"
    );
    assert!(matches!(of((11, 5), Access::Write), Err(Error::Corrupted { .. })), "there is no such domain");
}

/// A newer version may add features that older versions must not write, or must not even read.
#[test]
fn unknown_features_forbid_writing_or_everything() {
    for access in [Access::Read, Access::Write] {
        assert_eq!(of(None, access).unwrap(), CONTENTS);
        assert_eq!(of((2, u64::MAX), access).unwrap(), CONTENTS, "features that every version may ignore");
        assert_eq!(of((3, 0), access).unwrap(), CONTENTS, "a pool of the time before logs had checks");
        let under_way = of((3, INCOMPAT_LOG_CHECKS | INCOMPAT_INTENT), access).unwrap();
        assert_eq!(under_way, Contents { intent: true, ..CONTENTS });
        let paged = of((3, INCOMPAT_LOG_CHECKS | INCOMPAT_PAGES), access).unwrap();
        assert_eq!(paged, Contents { pages: true, ..CONTENTS });
        let journal = of((3, INCOMPAT_LOG_CHECKS | INCOMPAT_JOURNAL), access);
        assert!(matches!(journal, Err(Error::Corrupted { .. })), "a journal without its domain");
        for bit in [5, 6, 31, 63] {
            assert!(matches!(of((3, 1 << bit), access), Err(Error::Newer { .. })));
            let writes = access == Access::Write;
            match of((4, 1 << bit), access) {
                Ok(contents) => assert!(!writes && contents == CONTENTS),
                Err(error) => assert!(writes && matches!(error, Error::Newer { .. }), "{error}"),
            }
        }
        assert!(matches!(of((1, VERSION + 1), access), Err(Error::Newer { .. })));
        assert!(matches!(of((0, MAGIC + 1), access), Err(Error::Corrupted { .. })));
    }
}

#[test]
fn the_newer_valid_copy_counts_and_a_newer_version_has_the_last_word() {
    let (old, new) = (CONTENTS, Contents { sequence: 9, clean: false, ..CONTENTS });
    let mut torn = new.to_superblock();
    torn.sequence ^= 1;
    let of = |a, b| Contents::of([a, b], Access::Write).map(|(contents, _)| contents);
    assert_eq!(of(old.to_superblock(), new.to_superblock()).unwrap(), new);
    assert_eq!(of(new.to_superblock(), old.to_superblock()).unwrap(), new);
    assert_eq!(of(old.to_superblock(), torn).unwrap(), old);
    assert_eq!(of(torn, old.to_superblock()).unwrap(), old);
    assert!(matches!(of(torn, torn), Err(Error::Corrupted { .. })));
    for copies in [[with(1, VERSION + 1), new.to_superblock()], [torn, with(1, VERSION + 1)]] {
        let [a, b] = copies;
        assert!(matches!(of(a, b), Err(Error::Newer { .. })));
        assert!(matches!(of(b, a), Err(Error::Newer { .. })));
    }
}

#[test]
fn the_number_of_a_segment_is_kept_with_and_without_the_mark_of_a_clean_close() {
    let most = (1 << NUMBER_BITS) - 1;
    for (clean, seal) in [(true, 1), (true, most), (false, 1), (false, most)] {
        let contents = Contents { clean, seal, ..CONTENTS };
        let found = parse(&contents.to_superblock(), Access::Write).unwrap();
        assert_eq!(found, contents);
    }
}

#[test]
fn a_creation_that_was_cut_short_damaged_nothing() {
    let is_damaged = |copies| Contents::of(copies, Access::Write).unwrap().1.is_some();
    let first = Contents { sequence: 0, clean: false, ..CONTENTS };
    let second = Contents { sequence: 1, ..first }.to_superblock().words();
    for kept in 0..1_u32 << SUPERBLOCK_WORDS {
        let torn = std::array::from_fn(|at| if kept >> at & 1 == 1 { second[at] } else { 0 });
        assert!(
            !is_damaged([first.to_superblock(), Superblock::from_words(torn)]),
            "words {kept:#b} are there"
        );
    }
    let nothing = Superblock::default();
    assert!(
        is_damaged([nothing, Superblock::from_words(second)]),
        "the first copy is durable before the second begins"
    );
    let used = Contents { sequence: 2, ..first };
    assert!(
        is_damaged([used.to_superblock(), nothing]),
        "the second copy was durable before the pool was used"
    );
    // Behind the sequence, any torn word is acceptable.
    for at in 0..=10 {
        let mut other = second;
        other[at] ^= 1 << 40;
        assert!(
            is_damaged([first.to_superblock(), Superblock::from_words(other)]),
            "word {at} is one that nothing wrote"
        );
    }
}

#[test]
fn sizes_are_possible_up_to_their_limits_and_no_further() {
    // A word, its limits, and the other words they require.
    for (at, least, most) in [(7, 4096, 1 << 30), (8, 1, 1 << 27), (9, 1, 4096)] {
        for word in [least, most] {
            assert!(of((at, word), Access::Write).is_ok(), "word {at}: {word:#x}");
        }
        for word in [0, least - 1, least / 2, most + 1, most * 2, u64::MAX] {
            let said = of((at, word), Access::Write);
            assert!(matches!(said, Err(Error::Corrupted { .. })), "word {at}: {word:#x}");
        }
    }
    assert!(of((7, 3 << 20), Access::Write).is_err(), "no power of two");
    let geometry = |chunk_bytes, chunks_max| Geometry { chunk_bytes, chunks_max, trees_max: 1 };
    assert!(geometry(1 << 15, (1 << 32) - 1).is_valid() && !geometry(1 << 15, 1 << 32).is_valid());
    assert!(!geometry(1 << 17, (1 << 32) - 1).is_valid(), "together they are too much");
}
