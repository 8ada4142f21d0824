//! A secondary index in a second tree, and the consequence of single-key atomicity for the pair.
//!
//! A write to one tree is atomic, a pair of writes is not: a crash, or a reader, may come between them. Three rules
//! make that harmless:
//!
//! 1. The first tree is authoritative. The index is written *before* an item is inserted, and cleaned *after* it is
//!    removed, so that the index always contains each item; an index entry may have no item.
//! 2. A reader that uses the index verifies that the item still matches the entry.
//! 3. After a crash, or when idle, entries without a matching item are removed.
//!
//! ```sh
//! cargo run --release --example secondary_index
//! ```

use std::path::PathBuf;

use bristlecone::{Pool, Result, Tree};

/// People by number, and by their town.
struct People {
    towns: Tree<u64, &'static str>,
    by_town: Tree<(&'static str, u64), u64>,
}

impl People {
    fn open(pool: &Pool) -> Result<Self> {
        Ok(Self { towns: pool.tree("people")?, by_town: pool.tree("people by town")? })
    }

    /// Sets the town of a person. Only one thread at a time may write a given person.
    fn move_to(&self, person: u64, town: &str) -> Result<()> {
        self.by_town.insert((town, person), 0)?;
        match self.towns.insert(person, town)? {
            Some(before) if before != town => self.by_town.remove((&before, person)).map(drop),
            _ => Ok(()),
        }
    }

    /// Returns the people of a town.
    fn living_in(&self, town: &str) -> Result<Vec<u64>> {
        let mut people = Vec::new();
        for item in self.by_town.range((town, 0)..=(town, u64::MAX)) {
            let ((_, person), _) = item?;
            if self.lives_in(person, town)? {
                people.push(person);
            }
        }
        Ok(people)
    }

    fn lives_in(&self, person: u64, town: &str) -> Result<bool> {
        Ok(self.towns.get_with(person, |lives| lives == town)?.unwrap_or(false))
    }

    /// Removes entries of the index without a matching person; returns their number.
    fn repair(&self) -> Result<usize> {
        let mut removed = 0;
        for item in &self.by_town {
            let ((town, person), _) = item?;
            if !self.lives_in(person, &town)? {
                self.by_town.remove((&town, person))?;
                removed += 1;
            }
        }
        Ok(removed)
    }
}

/// Runs the example.
pub fn main() -> Result<()> {
    let path = PathBuf::from(format!("/dev/shm/bristlecone-people-{}.pool", std::process::id()));
    let pool = Pool::options().max_bytes(64 << 20).create_new(true).open(&path)?;
    let people = People::open(&pool)?;
    for person in 0..100 {
        people.move_to(person, ["Ulm", "Pisa", "Turku"][person as usize % 3])?;
    }
    people.move_to(7, "Ulm")?;
    println!(
        "{} people live in Ulm, {} in Pisa",
        people.living_in("Ulm")?.len(),
        people.living_in("Pisa")?.len()
    );
    assert_eq!((people.living_in("Ulm")?.len(), people.living_in("Pisa")?.len()), (35, 32));

    // A crash between the two writes of a move: the index has one entry too many.
    people.by_town.insert(("Turku", 7), 0)?;
    drop(people);
    pool.simulate_crash();

    let pool = Pool::options().open(&path)?;
    let people = People::open(&pool)?;
    assert!(!people.living_in("Turku")?.contains(&7), "readers are not led astray");
    println!("{} entry of the index was put right", people.repair()?);
    assert_eq!(people.by_town.len()?, people.towns.len()?);
    assert_eq!(people.repair()?, 0);

    drop(people);
    pool.close()?;
    std::fs::remove_file(&path).map_err(|error| bristlecone::Error::io("removing the pool", error))
}
