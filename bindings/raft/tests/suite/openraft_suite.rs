//! openraft's own tests of stores.

use bristlecone_raft::bristlecone::Domain;
use bristlecone_raft::openraft::StorageError;
use bristlecone_raft::openraft::testing::{StoreBuilder, Suite};
use tempfile::TempDir;

use crate::stores::{Cell, Log, State, Types};

impl StoreBuilder<Types, Log, State, TempDir> for Cell {
    async fn build(&self) -> Result<(TempDir, Log, State), StorageError<u64>> {
        let folder = self.folder();
        let (log, state) = self.open(&folder);
        Ok((folder, log, state))
    }
}

/// Runs the suite for all designs at the same time: most of it sleeps.
fn run_in(domain: Domain) {
    std::thread::scope(|scope| {
        for cell in Cell::all().into_iter().filter(|cell| cell.domain == domain) {
            scope.spawn(move || Suite::test_all(cell).unwrap_or_else(|error| panic!("{cell:?}: {error}")));
        }
    });
}

#[test]
fn openraft_suite_passes_with_every_design_on_a_disk() {
    run_in(Domain::Journal);
}

#[test]
fn openraft_suite_passes_with_every_design_in_shared_memory() {
    run_in(Domain::Process);
}
