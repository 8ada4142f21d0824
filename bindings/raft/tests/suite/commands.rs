//! Commands and reads of the map.

use bristlecone_raft::bristlecone::{KEY_BYTES_MAX, VALUE_BYTES_MAX};
use bristlecone_raft::openraft::storage::RaftStateMachine;
use bristlecone_raft::{Command, Reply};

use crate::stores::{State, entry, in_every_cell, put};

async fn apply(state: &mut State, first: u64, commands: Vec<Command>) -> Vec<Reply> {
    let entries = (first..).zip(commands).map(|(index, command)| entry(index, command));
    state.apply(entries.collect::<Vec<_>>()).await.expect("entries are applied")
}

fn delete(key: &str) -> Command {
    Command::Delete { key: key.into() }
}

fn exchange(key: &str, expected: Option<&str>, new: Option<&str>) -> Command {
    let bytes = |text: &str| text.as_bytes().to_vec();
    Command::CompareAndSet { key: key.into(), expected: expected.map(bytes), new: new.map(bytes) }
}

#[test]
fn commands_of_one_call_see_each_other() {
    in_every_cell(|cell| async move {
        let folder = cell.folder();
        let (_log, mut state) = cell.open(&folder);
        let commands = vec![
            put("a", "1"),
            exchange("a", Some("1"), Some("2")),
            exchange("a", Some("1"), Some("3")),
            exchange("b", None, Some("4")),
            exchange("b", None, Some("5")),
            exchange("c", Some("6"), None),
            delete("a"),
            delete("a"),
            exchange("b", Some("4"), None),
        ];
        let some = |text: &str| Some(text.as_bytes().to_vec());
        let expected = vec![
            Reply::Written,
            Reply::Exchanged,
            Reply::Differs(some("2")),
            Reply::Exchanged,
            Reply::Differs(some("4")),
            Reply::Differs(None),
            Reply::Removed(some("2")),
            Reply::Removed(None),
            Reply::Exchanged,
        ];
        assert_eq!(apply(&mut state, 1, commands).await, expected, "{cell:?}");
        assert!(state.map().is_empty().unwrap());
    });
}

#[test]
fn lengths_are_bounded_and_longer_ones_change_nothing() {
    in_every_cell(|cell| async move {
        let folder = cell.folder();
        let (_log, mut state) = cell.open(&folder);
        let commands = vec![
            put([], []),
            put(vec![7; KEY_BYTES_MAX], vec![8; VALUE_BYTES_MAX]),
            put(vec![7; KEY_BYTES_MAX + 1], "too long"),
            put("a", vec![8; VALUE_BYTES_MAX + 1]),
            Command::Delete { key: vec![7; KEY_BYTES_MAX + 1] },
            Command::CompareAndSet { key: vec![], expected: Some(vec![9; VALUE_BYTES_MAX + 1]), new: None },
        ];
        let replies = apply(&mut state, 1, commands).await;
        assert_eq!(replies[..2], [Reply::Written, Reply::Written], "{cell:?}");
        assert!(replies[2..].iter().all(|reply| matches!(reply, Reply::TooLong(_))), "{cell:?}: {replies:?}");
        let map = state.map();
        assert_eq!(map.get(&[]).unwrap(), Some(vec![]));
        assert_eq!(map.get(&[7; KEY_BYTES_MAX]).unwrap(), Some(vec![8; VALUE_BYTES_MAX]));
        assert_eq!(map.len().unwrap(), 2);
        // The entries count as applied.
        assert_eq!(state.applied_state().await.unwrap().0.map(|id| id.index), Some(6));
    });
}

#[test]
fn ranges_are_ordered_bounded_and_may_be_reversed() {
    in_every_cell(|cell| async move {
        let folder = cell.folder();
        let (_log, mut state) = cell.open(&folder);
        // More entries than one transaction has.
        let commands = (0..600_u64).map(|n| put(n.to_be_bytes(), n.to_le_bytes())).collect();
        apply(&mut state, 1, commands).await;
        let map = state.map();
        let key = |n: u64| n.to_be_bytes();
        let keys = |items: Vec<(Vec<u8>, Vec<u8>)>| -> Vec<u64> {
            items.into_iter().map(|(_, value)| u64::from_le_bytes(value.try_into().unwrap())).collect()
        };
        assert_eq!(keys(map.range(.., usize::MAX).unwrap()), (0..600).collect::<Vec<_>>(), "{cell:?}");
        assert_eq!(keys(map.range(&key(10)[..]..&key(20), 5).unwrap()), [10, 11, 12, 13, 14]);
        assert_eq!(keys(map.range(&key(597)[..].., 5).unwrap()), [597, 598, 599]);
        assert!(keys(map.range(&key(20)[..]..&key(10), 5).unwrap()).is_empty());
        assert!(keys(map.range(.., 0).unwrap()).is_empty());
    });
}
