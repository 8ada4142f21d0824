//! How the items of a map are packed: into the server's dumps, and on the way from parent to child.
//!
//! A piece is a sequence of items, each the length of its field as four bytes little-endian, the field, the length of
//! its value, the value. A map is a sequence of pieces, and an empty one at the end.

use bristlecone::{Error, Result};

/// Size in bytes at which a piece is passed on.
pub const PIECE_BYTES: usize = 64 << 10;

/// Appends an item to a piece.
pub fn append(piece: &mut Vec<u8>, field: &[u8], value: &[u8]) {
    for part in [field, value] {
        piece.extend_from_slice(&(part.len() as u32).to_le_bytes());
        piece.extend_from_slice(part);
    }
}

/// Calls `give` with pieces of what an iterator returns, keys without their first `skip` bytes, and with an empty one at last.
pub fn pack(
    items: impl Iterator<Item = Result<(Vec<u8>, Vec<u8>)>>,
    skip: usize,
    mut give: impl FnMut(&[u8]) -> Result<()>,
) -> Result<()> {
    let mut piece = Vec::new();
    for item in items {
        let (key, value) = item?;
        append(&mut piece, &key[skip..], &value);
        if piece.len() >= PIECE_BYTES {
            give(&piece)?;
            piece.clear();
        }
    }
    if !piece.is_empty() {
        give(&piece)?;
    }
    give(b"")
}

/// Returns the items of a piece.
///
/// # Errors
///
/// [`Error::Invalid`] for a piece that is cut short.
pub fn unpack(mut piece: &[u8]) -> Result<Vec<(&[u8], &[u8])>> {
    let mut items = Vec::new();
    while !piece.is_empty() {
        let item = take(&mut piece).and_then(|field| Some((field, take(&mut piece)?)));
        items.push(item.ok_or_else(|| Error::Invalid { what: "a piece of a map is cut short".to_owned() })?);
    }
    Ok(items)
}

fn take<'a>(piece: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (len, rest) = piece.split_first_chunk::<4>()?;
    let (part, rest) = rest.split_at_checked(u32::from_le_bytes(*len) as usize)?;
    *piece = rest;
    Some(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pack_then_unpack_returns_the_items() {
        let items: Vec<(Vec<u8>, Vec<u8>)> =
            (0u32..3000).map(|n| (n.to_be_bytes().to_vec(), vec![n as u8; (n % 97) as usize])).collect();
        let mut pieces = Vec::new();
        let prefixed =
            items.iter().map(|(key, value)| Ok(([b"12345678", key.as_slice()].concat(), value.clone())));
        pack(prefixed, 8, |piece| {
            pieces.push(piece.to_vec());
            Ok(())
        })
        .unwrap();
        assert!(pieces.len() > 2 && pieces.last().unwrap().is_empty());
        let found: Vec<(Vec<u8>, Vec<u8>)> = pieces
            .iter()
            .flat_map(|piece| unpack(piece).unwrap())
            .map(|(field, value)| (field.to_vec(), value.to_vec()))
            .collect();
        assert_eq!(found, items);
    }

    #[test]
    fn unpack_of_a_cut_piece_is_refused() {
        let mut piece = Vec::new();
        append(&mut piece, b"field", b"value");
        for len in 1..piece.len() {
            assert!(unpack(&piece[..len]).is_err(), "{len}");
        }
        assert!(unpack(&u32::MAX.to_le_bytes()).is_err());
    }
}
