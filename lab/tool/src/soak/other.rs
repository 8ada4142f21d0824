//! Another tree that is created and dropped while the main tree is written.

use std::sync::atomic::Ordering::{Acquire, Release};

use bristlecone::{Design, Error, Pool, Tree};
use bristlecone_random::Generator;

use super::board::Board;
use super::checked::{Checked, expect, failed};
use super::life::Life;

const NAME: &str = "other";
const ITEMS: u64 = 20;

/// The values of [`Board::other`].
const ABSENT: u64 = 0;
const MAY_BE: u64 = 1;
const PRESENT: u64 = 2;

/// Compares the tree with the board after an open.
pub fn compare(board: &Board, pool: &Pool) -> Checked {
    let is_due = board.other.load(Acquire);
    match pool.check_tree(NAME) {
        Err(Error::NoSuchTree { .. }) => expect(is_due != PRESENT, || "the other tree is gone".to_owned()),
        Ok((items, issues)) => {
            expect(is_due != ABSENT, || "the other tree was dropped, and is there".to_owned())?;
            let right = if is_due == PRESENT { items == ITEMS } else { items <= ITEMS };
            expect(right && issues.is_empty(), || format!("the other tree: {items} items, {issues:?}"))
        }
        Err(error) => Err(failed("opening the other tree")(error)),
    }
}

/// Drops the tree if it exists, otherwise creates it; returns whether there was space.
pub fn turn(life: &Life<'_>, pool: &Pool, generator: &mut Generator) -> Checked<bool> {
    let was = life.board.other.swap(MAY_BE, Release);
    match pool.drop_tree(NAME) {
        Ok(()) => {
            life.board.other.store(ABSENT, Release);
            return Ok(true);
        }
        Err(Error::NoSuchTree { .. }) => {
            expect(was != PRESENT, || "the other tree is gone".to_owned())?;
        }
        Err(error) => return Err(failed("dropping the other tree")(error)),
    }
    let design = Design::ALL[generator.below(Design::ALL.len() as u64) as usize];
    let filled = pool.tree_options(NAME).design(design).create().and_then(|tree: Tree<u64, &[u8]>| {
        (0..ITEMS).try_for_each(|at| tree.insert(at, &at.to_le_bytes()).map(drop))
    });
    match filled {
        Ok(()) => {
            life.board.other.store(PRESENT, Release);
            Ok(true)
        }
        Err(error) if life.is_no_room(&error) => Ok(false),
        Err(error) => Err(failed("creating the other tree")(error)),
    }
}
