//! Inbox messages: written within the writer's transaction, read by readers.

use bytes::Bytes;
use rusqlite::{Connection, params};

use super::failure::unreadable;
use super::parameters::json;
use crate::inbox::{ExpiredMessage, InboxMessage};
use crate::rows::readable;

/// Writes a message and returns its id; none = the inbox is full.
pub(super) fn queue(connection: &Connection, queued: &InboxMessage) -> rusqlite::Result<Option<u64>> {
    let InboxMessage { scope, name, message, expires_ms, limit } = queued;
    let count = "SELECT count(*) FROM inbox_message WHERE scope = ?1 AND name = ?2";
    let waiting: usize = connection.prepare_cached(count)?.query_row(params![&**scope, name], |row| row.get(0))?;
    if waiting >= *limit {
        return Ok(None);
    }
    let insert = "INSERT INTO inbox_message (scope, name, message, expires_ms, format) VALUES (?1, ?2, ?3, ?4, 1)";
    let message = std::str::from_utf8(message).unwrap_or_default();
    connection.prepare_cached(insert)?.execute(params![&**scope, name, message, expires_ms])?;
    Ok(Some(connection.last_insert_rowid() as u64))
}

/// Deletes messages.
pub(super) fn discard(connection: &Connection, ids: &[u64]) -> rusqlite::Result<()> {
    let delete = "DELETE FROM inbox_message WHERE id IN (SELECT value FROM json_each(?1))";
    connection.prepare_cached(delete)?.execute([json(ids)]).map(drop)
}

/// Deletes expired messages, at most `limit`, and returns them.
pub(super) fn expire(connection: &Connection, now_ms: u64, limit: u64) -> rusqlite::Result<Vec<ExpiredMessage>> {
    let delete = "DELETE FROM inbox_message WHERE id IN (SELECT id FROM inbox_message WHERE expires_ms <= ?1 LIMIT ?2) \
         RETURNING id, scope, name, expires_ms";
    let mut delete = connection.prepare_cached(delete)?;
    let rows = delete.query_map(params![now_ms, limit], |row| {
        let (scope, name): (String, String) = (row.get(1)?, row.get(2)?);
        Ok(ExpiredMessage { id: row.get(0)?, scope: scope.into(), name: name.into(), expires_ms: row.get(3)? })
    })?;
    rows.collect()
}

/// Messages to a name after an id, oldest first.
pub(super) fn read(
    connection: &Connection,
    scope: &str,
    name: &str,
    behind: u64,
    limit: usize,
    now_ms: u64,
) -> rusqlite::Result<Vec<(u64, Bytes)>> {
    let select = "SELECT id, message, format FROM inbox_message \
         WHERE scope = ?1 AND name = ?2 AND id > ?3 AND expires_ms > ?4 ORDER BY id LIMIT ?5";
    let mut select = connection.prepare_cached(select)?;
    let rows = select.query_map(params![scope, name, behind, now_ms, limit], |row| {
        readable(row.get(2)?).map_err(unreadable)?;
        Ok((row.get(0)?, Bytes::from(row.get::<_, String>(1)?)))
    })?;
    rows.collect()
}
