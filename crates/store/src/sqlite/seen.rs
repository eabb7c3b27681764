//! Records of when users were last connected.

use rusqlite::{Connection, OptionalExtension as _, params};

use crate::seen::{SeenForgotten, SeenUser};

/// Records when users were connected. A later recorded time is kept.
pub(super) fn note(connection: &Connection, rows: &[SeenUser]) -> rusqlite::Result<()> {
    let note = "INSERT INTO user_seen (name, seen_s) VALUES (?1, ?2) \
         ON CONFLICT (name) DO UPDATE SET seen_s = ?2 WHERE seen_s < ?2";
    let mut note = connection.prepare_cached(note)?;
    rows.iter().try_for_each(|row| note.execute(params![row.user, row.seen_s]).map(drop))
}

/// Returns which of these users were connected after a time, Unix seconds, and when last.
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

/// Deletes at most `limit` users that were not connected after a time, Unix seconds. Returns how many.
pub(super) fn expire(connection: &Connection, after_s: u64, limit: u64) -> rusqlite::Result<u64> {
    let delete = "DELETE FROM user_seen WHERE name IN (SELECT name FROM user_seen WHERE seen_s <= ?1 LIMIT ?2)";
    Ok(connection.prepare_cached(delete)?.execute(params![after_s, limit])? as u64)
}

/// Deletes the record of when a user was last connected.
pub(super) fn forget(connection: &Connection, user: &str) -> rusqlite::Result<SeenForgotten> {
    let deleted = connection.prepare_cached("DELETE FROM user_seen WHERE name = ?1")?.execute([user])?;
    Ok(if deleted > 0 { SeenForgotten::Deleted } else { SeenForgotten::Unknown })
}
