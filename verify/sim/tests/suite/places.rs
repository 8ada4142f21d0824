//! Accesses are distinguished by their source locations, also if the medium is chosen at run time.

use std::collections::BTreeSet;

use bristlecone_pm::{Alone, Flushed, Medium, Persist, Word, write_words};
use bristlecone_sim::{Event, Memory, Sim, Site};

/// Executes everything that a crash depends on, twice.
fn access<M: Medium>(medium: &M, words: &[Word]) {
    words[0].store(medium, 1);
    words[0].store(medium, 2);
    words[1].store_derived(medium, 1);
    words[1].store_derived(medium, 2);
    write_words(medium, &words[2..4], &[1, 2]);
    write_words(medium, &words[2..4], &[3, 4]);
    words[4].publish(medium, 1, &Alone, "publish");
    words[4].publish(medium, 2, &Alone, "publish");
    words[5].publish_if(medium, 0, 1, &Alone).unwrap();
    words[5].publish_if(medium, 1, 2, &Alone).unwrap();
    let _ = medium.ordered_within_line();
    let _ = medium.ordered_within_line();
    let flushed = medium.flush(&words[0], "flush").and(medium.flush(&words[1], "flush"));
    let _ = medium.fence(flushed, "fence");
    let _ = medium.fence(Flushed::none(), "fence");
}

/// Returns the locations of the accesses, in order.
fn sites<M: Medium>(medium: impl FnOnce(Sim) -> M) -> Vec<Site> {
    let memory = Memory::new(64);
    let sim = Sim::new(&memory);
    access(&medium(sim.clone()), memory.words(0, 8));
    assert_eq!(memory.words(0, 8)[3].load(&sim), 4);
    sim.take_trace().iter().filter_map(Event::site).collect()
}

#[test]
fn a_call_through_a_table_keeps_the_place_of_the_access() {
    let known = sites(|sim| sim);
    let chosen = sites(|sim| Box::new(sim) as Box<dyn Medium>);
    assert_eq!(known, chosen);
    // Two words of each call of `write_words` are one site.
    assert_eq!(known.len(), 18);
    assert_eq!(known.iter().collect::<BTreeSet<_>>().len(), 16);
    assert!(known.iter().all(|site| site.at.file().ends_with("places.rs")), "{known:?}");
}
