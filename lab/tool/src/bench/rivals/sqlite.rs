//! SQLite, through `rusqlite`: a table without row numbers, which is a B-tree, behind a write-ahead log.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, TransactionBehavior, params};

use super::{ByteStore, Class, Refused, When};

/// A pool of connections, each used by one thread at a time.
struct Sqlite {
    file: PathBuf,
    class: Class,
    idle: Mutex<Vec<Connection>>,
}

/// Opens or creates it.
pub fn open(folder: &Path, class: Class) -> Refused<Box<dyn ByteStore>> {
    let store = Sqlite { file: folder.join("bench.sqlite"), class, idle: Mutex::default() };
    let table = "CREATE TABLE IF NOT EXISTS bench (key BLOB PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID";
    store.with(|connection| connection.execute(table, []))?;
    Ok(Box::new(store))
}

impl Sqlite {
    fn connect(&self) -> rusqlite::Result<Connection> {
        let connection = Connection::open(&self.file)?;
        connection.busy_timeout(Duration::from_secs(60))?;
        connection.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))?;
        let synchronous = if self.class == Class::Power { "FULL" } else { "OFF" };
        connection.pragma_update(None, "synchronous", synchronous)?;
        Ok(connection)
    }

    fn with<R>(&self, work: impl FnOnce(&mut Connection) -> rusqlite::Result<R>) -> Refused<R> {
        let idle = || self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = idle().pop();
        let mut connection = taken.map_or_else(|| self.connect(), Ok)?;
        let done = work(&mut connection)?;
        idle().push(connection);
        Ok(done)
    }
}

impl ByteStore for Sqlite {
    fn write(&self, key: &[u8], value: &[u8], when: When) -> Refused<bool> {
        let statement = match when {
            When::Always => "INSERT OR REPLACE INTO bench (key, value) VALUES (?1, ?2)",
            When::Absent => "INSERT OR IGNORE INTO bench (key, value) VALUES (?1, ?2)",
            When::Present => "UPDATE bench SET value = ?2 WHERE key = ?1",
        };
        self.with(|connection| Ok(connection.prepare_cached(statement)?.execute(params![key, value])? == 1))
    }

    fn get(&self, key: &[u8], look: &mut dyn FnMut(&[u8])) -> Refused<bool> {
        self.with(|connection| {
            let mut statement = connection.prepare_cached("SELECT value FROM bench WHERE key = ?1")?;
            let found = statement.query_row([key], |row| {
                look(row.get_ref(0)?.as_blob()?);
                Ok(())
            });
            Ok(found.optional()?.is_some())
        })
    }

    fn remove(&self, key: &[u8]) -> Refused<bool> {
        self.with(|connection| {
            Ok(connection.prepare_cached("DELETE FROM bench WHERE key = ?1")?.execute([key])? == 1)
        })
    }

    fn scan(&self, from: &[u8], length: usize, each: &mut dyn FnMut(&[u8], &[u8])) -> Refused<usize> {
        self.with(|connection| {
            let select = "SELECT key, value FROM bench WHERE key >= ?1 ORDER BY key LIMIT ?2";
            let mut statement = connection.prepare_cached(select)?;
            let (mut rows, mut seen) = (statement.query(params![from, length as i64])?, 0);
            while let Some(row) = rows.next()? {
                each(row.get_ref(0)?.as_blob()?, row.get_ref(1)?.as_blob()?);
                seen += 1;
            }
            Ok(seen)
        })
    }

    fn load(&self, entries: &mut dyn Iterator<Item = (Vec<u8>, Vec<u8>)>) -> Refused<()> {
        self.with(|connection| {
            let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            {
                let insert = "INSERT OR REPLACE INTO bench (key, value) VALUES (?1, ?2)";
                let mut statement = transaction.prepare_cached(insert)?;
                for (key, value) in entries {
                    statement.execute(params![key, value])?;
                }
            }
            transaction.commit()
        })
    }
}
