//! What an archive keeps.

use std::time::Duration;

use super::catalog::Catalog;

/// How long an archive keeps its files: see [`Archiver::prune`](crate::Archiver::prune). The default keeps all.
///
/// It always keeps a checkpoint, or the begin of the journal, with all entries behind it: every moment from there on can be
/// restored. Files are removed up to a later checkpoint only, so a pool that makes none loses nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Keep {
    /// Every moment since this time ago can be restored.
    pub time: Option<Duration>,
    /// Older files are removed while all have more than these bytes, if there is a later checkpoint. This wins over
    /// `time`.
    pub bytes: Option<u64>,
}

impl Keep {
    /// Returns the default, which keeps all.
    pub fn all() -> Self {
        Self::default()
    }

    /// Sets the time for which every moment can be restored.
    #[must_use]
    pub fn time(mut self, time: Duration) -> Self {
        self.time = Some(time);
        self
    }

    /// Sets the bytes above which older files are removed.
    #[must_use]
    pub fn bytes(mut self, bytes: u64) -> Self {
        self.bytes = Some(bytes);
        self
    }
}

/// Returns the catalog without what need not be kept; `None` if all is. `now` is in milliseconds since 1970.
pub fn pruned(catalog: &Catalog, keep: &Keep, now: u64) -> Option<Catalog> {
    // The first base that is kept: the begin of the archive is that of the first one, or LSN 0.
    let of_time = keep.time.map_or(0, |time| {
        let since = now.saturating_sub(time.as_millis() as u64);
        catalog.bases.iter().rposition(|base| base.time <= since).unwrap_or(0)
    });
    let mut first = of_time;
    if let Some(bytes) = keep.bytes {
        while without(catalog, first).bytes() > bytes && first + 1 < catalog.bases.len() {
            first += 1;
        }
    }
    let is_base_needed = keep.time.is_none() && keep.bytes.is_none();
    let pruned = if is_base_needed { return None } else { without(catalog, first) };
    (pruned != *catalog).then_some(pruned)
}

/// Returns the catalog from a base on, with all entries that it needs.
fn without(catalog: &Catalog, base: usize) -> Catalog {
    let mut kept = catalog.clone();
    let Some(first) = catalog.bases.get(base) else { return kept };
    // A journal that was archived from its creation on can be restored without a checkpoint.
    if base == 0 && catalog.is_whole {
        return kept;
    }
    let begin = first.checkpoint.begin;
    kept.is_whole = false;
    kept.bases.drain(..base);
    kept.pieces.retain(|piece| piece.end > begin);
    kept.longs.retain(|long| long.lsn >= kept.pieces.first().map_or(kept.end, |piece| piece.first));
    kept
}

#[cfg(test)]
mod tests {
    use bristlecone_pm::Geometry;

    use super::super::catalog::{Base, Long, Piece};
    use super::*;
    use crate::journal::manifest::Checkpoint;

    /// An archive from its begin on, with a piece a second, and a checkpoint every ten.
    fn some() -> Catalog {
        let piece = |at: u64| Piece {
            file: at,
            first: at * 100,
            end: at * 100 + 100,
            bytes: 1000,
            since: at * 1000,
            time: at * 1000 + 1000,
            checksum: 0,
            level: 0,
        };
        let base = |at: u64| Base {
            checkpoint: Checkpoint { file: 1000 + at, begin: at * 1000, end: at * 1000 + 100, bytes: 5000 },
            time: at * 10_000 + 1000,
            checksum: 0,
        };
        Catalog {
            uuid: 1,
            id: 2,
            geometry: Geometry { chunk_bytes: 4096, chunks_max: 1, trees_max: 1 },
            timeline: Default::default(),
            fork: 0,
            is_whole: true,
            next: 5000,
            end: 10_000,
            as_of: 100_000,
            pieces: (0..100).map(piece).collect(),
            bases: (1..10).map(base).collect(),
            longs: (0..100).map(|at| Long { file: 2000 + at, lsn: at * 100, bytes: 10 }).collect(),
        }
    }

    #[test]
    fn what_is_kept_can_be_restored() {
        let all = some();
        assert_eq!(pruned(&all, &Keep::all(), 100_000), None);
        for seconds in 0..120_u64 {
            let keep = Keep::all().time(Duration::from_secs(seconds));
            let Some(kept) = pruned(&all, &keep, 100_000) else { continue };
            let since = 100_000 - seconds * 1000;
            let base = kept.bases.first().unwrap();
            assert!(base.time <= since || kept.is_whole, "{seconds}");
            assert!(kept.first() <= base.checkpoint.begin && kept.end == all.end);
            assert!(kept.bases.get(1).is_none_or(|next| next.time > since), "{seconds}: too much is kept");
            assert!(kept.longs.iter().all(|long| long.lsn >= kept.first()));
            assert_eq!(pruned(&kept, &keep, 100_000), None);
        }
        assert_eq!(
            pruned(&all, &Keep::all().time(Duration::from_secs(95)), 100_000),
            None,
            "nothing is older"
        );
    }

    #[test]
    fn bytes_are_a_limit_as_far_as_checkpoints_allow() {
        let all = some();
        let mut last = u64::MAX;
        for bytes in (0..200_000).rev().step_by(10_000) {
            let kept = pruned(&all, &Keep::all().bytes(bytes), 100_000).unwrap_or(all.clone());
            assert!(kept.bytes() <= last && !kept.bases.is_empty());
            assert!(kept.bytes() <= bytes || kept.bases.len() == 1);
            last = kept.bytes();
        }
        let none = Catalog { bases: Vec::new(), ..some() };
        assert_eq!(pruned(&none, &Keep::all().bytes(1), 100_000), None, "no checkpoint");
    }
}
