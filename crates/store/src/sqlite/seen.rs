//! When users were connected last.

use rusqlite::{Connection, OptionalExtension as _, params};

use crate::seen::SeenUser;

/// Notes when users were connected. A later time stays.
pub(super) fn note(connection: &Connection, rows: &[SeenUser]) -> rusqlite::Result<()> {
    let note = "INSERT INTO user_seen (name, seen_s) VALUES (?1, ?2) \
         ON CONFLICT (name) DO UPDATE SET seen_s = ?2 WHERE seen_s < ?2";
    let mut note = connection.prepare_cached(note)?;
    rows.iter().try_for_each(|row| note.execute(params![row.user, row.seen_s]).map(drop))
}

/// Which of these users were connected after a time, Unix seconds, and when last.
pub(super) fn read(connection: &Connection, users: &[Box<str>], after_s: u64) -> rusqlite::Result<Vec<SeenUser>> {
    let mut select = connection.prepare_cached("SELECT seen_s FROM user_seen WHERE name = ?1 AND seen_s > ?2")?;
    let mut seen = Vec::new();
    for user in users {
        if let Some(seen_s) = select.query_row(params![user, after_s], |row| row.get(0)).optional()? {
            seen.push(SeenUser { user: (&**user).into(), seen_s });
        }
    }
    Ok(seen)
}

/// Deletes users that were not connected after a time, Unix seconds, at most `limit`; returns how many.
pub(super) fn expire(connection: &Connection, after_s: u64, limit: u64) -> rusqlite::Result<u64> {
    let delete = "DELETE FROM user_seen WHERE name IN (SELECT name FROM user_seen WHERE seen_s <= ?1 LIMIT ?2)";
    Ok(connection.prepare_cached(delete)?.execute(params![after_s, limit])? as u64)
}
