//! Shared facts. No other process writes to the file, so there are no changes to follow.

use std::path::Path;

use rusqlite::{Connection, OpenFlags, Row, params};
use touchline_protocol::fact::{Fact, FactChange, FactKey};

use super::failure::unreadable;
use crate::facts::FactListing;
use crate::rows::readable;

/// Writes or removes a fact.
pub(super) fn change(connection: &Connection, change: &FactChange) -> rusqlite::Result<()> {
    match change {
        FactChange::Put(Fact { key, value, expires_s }) => {
            let put = "INSERT INTO fact (kind, name, value, expires_s, format) VALUES (?1, ?2, ?3, ?4, 1) \
                 ON CONFLICT (kind, name) DO UPDATE SET value = ?3, expires_s = ?4, format = 1";
            connection.prepare_cached(put)?.execute(params![key.kind, key.name, value, expires_s]).map(drop)
        }
        FactChange::Remove(key) => {
            let delete = "DELETE FROM fact WHERE kind = ?1 AND name = ?2";
            connection.prepare_cached(delete)?.execute(params![key.kind, key.name]).map(drop)
        }
    }
}

/// Reads all facts.
pub(super) fn load(connection: &Connection) -> rusqlite::Result<Vec<Fact>> {
    let mut select = connection.prepare("SELECT kind, name, value, expires_s, format FROM fact")?;
    select.query_map([], fact)?.collect()
}

/// Reads a page of the facts that hold.
pub(super) fn list(connection: &Connection, listing: &FactListing) -> rusqlite::Result<Vec<Fact>> {
    let (FactKey { kind, name }, now_s, limit) = (listing.start(), listing.now_s, listing.limit);
    let select = match listing.kind {
        Some(_) => {
            "SELECT kind, name, value, expires_s, format FROM fact \
             WHERE kind = ?1 AND name > ?2 AND (expires_s = 0 OR expires_s > ?3) ORDER BY name LIMIT ?4"
        }
        None => {
            "SELECT kind, name, value, expires_s, format FROM fact \
             WHERE (kind, name) > (?1, ?2) AND (expires_s = 0 OR expires_s > ?3) ORDER BY kind, name LIMIT ?4"
        }
    };
    connection.prepare_cached(select)?.query_map(params![kind, name, now_s, limit], fact)?.collect()
}

fn fact(row: &Row<'_>) -> rusqlite::Result<Fact> {
    readable(row.get(4)?).map_err(unreadable)?;
    let key = FactKey { kind: row.get(0)?, name: row.get(1)? };
    Ok(Fact { key, value: row.get(2)?, expires_s: row.get(3)? })
}

/// Counts the facts in a file that need not be open as a store.
pub(crate) fn count(path: &Path) -> rusqlite::Result<u64> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.query_row("SELECT count(*) FROM fact", [], |row| row.get(0))
}

/// Deletes at most `limit` expired facts, and returns how many.
pub(super) fn expire(connection: &Connection, now_s: u64, limit: u64) -> rusqlite::Result<u64> {
    let delete = "DELETE FROM fact WHERE (kind, name) IN \
         (SELECT kind, name FROM fact WHERE expires_s > 0 AND expires_s <= ?1 LIMIT ?2)";
    Ok(connection.prepare_cached(delete)?.execute(params![now_s, limit])? as u64)
}
