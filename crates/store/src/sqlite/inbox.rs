//! Inbox messages. The writer's transaction changes them, and readers read them.

use bytes::Bytes;
use rusqlite::{Connection, OptionalExtension as _, params};

use super::failure::unreadable;
use super::parameters::json;
use crate::inbox::{
    DroppedMessages, ExpiredMessage, InboxDrop, InboxListing, InboxMessage, InboxNames, InboxPage, InboxPlace,
    InboxSearch, InboxSummary, LISTED_SIZE_MAX, TIME_CHARS, VISITED_MAX, WaitingMessage, sent_ms,
};
use crate::rows::readable;

/// Writes a message and returns its id. `None` = the inbox is full.
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

/// Deletes messages by their ids.
pub(super) fn discard(connection: &Connection, ids: &[u64]) -> rusqlite::Result<()> {
    let delete = "DELETE FROM inbox_message WHERE id IN (SELECT value FROM json_each(?1))";
    connection.prepare_cached(delete)?.execute([json(ids)]).map(drop)
}

/// Deletes at most `limit` expired messages, and returns them.
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

/// Reads the messages of a name after an id, oldest first.
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

/// Reads a page of names with messages. Each name is found by one index step, however many messages it has.
pub(super) fn names(connection: &Connection, search: &InboxSearch, now_ms: u64) -> rusqlite::Result<InboxNames> {
    let transaction = connection.unchecked_transaction()?;
    let mut found = InboxNames::default();
    let (mut place, mut is_included) = (search.after.clone(), false);
    if let Some(scope) = search.scope.as_ref().filter(|scope| (*scope, &search.prefix) > (&place.scope, &place.name)) {
        // Names are in the order of their bytes here, so names with the same prefix are adjacent.
        (place, is_included) = (InboxPlace { scope: scope.clone(), name: search.prefix.clone() }, true);
    }
    for _ in 0..VISITED_MAX {
        let Some(reached) = next_name(&transaction, &place, is_included)?.filter(|next| search.is_of_scope(next))
        else {
            return Ok(found);
        };
        (place, is_included) = (reached, false);
        if place.name.starts_with(&*search.prefix) {
            found.names.extend(summary(&transaction, &place, search.counted(), now_ms)?);
        } else if search.scope.is_some() {
            return Ok(found);
        }
        if found.names.len() >= search.limit {
            break;
        }
    }
    found.next = Some(place);
    Ok(found)
}

/// The first name with messages after a place, or at it. `None` = there is none.
fn next_name(connection: &Connection, place: &InboxPlace, is_included: bool) -> rusqlite::Result<Option<InboxPlace>> {
    let next = match is_included {
        true => "SELECT scope, name FROM inbox_message WHERE (scope, name) >= (?1, ?2) ORDER BY scope, name LIMIT 1",
        false => "SELECT scope, name FROM inbox_message WHERE (scope, name) > (?1, ?2) ORDER BY scope, name LIMIT 1",
    };
    let read = |row: &rusqlite::Row<'_>| Ok(InboxPlace { scope: row.get(0)?, name: row.get(1)? });
    connection.prepare_cached(next)?.query_row(params![place.scope, place.name], read).optional()
}

/// The summary of a name's messages. `None` = all of them have expired.
fn summary(
    connection: &Connection,
    place: &InboxPlace,
    counted: usize,
    now_ms: u64,
) -> rusqlite::Result<Option<InboxSummary>> {
    let count = "SELECT count(*), coalesce(sum(is_kept), 0), coalesce(sum(size * is_kept), 0), \
             min(CASE WHEN is_kept THEN id END) \
         FROM (SELECT id, octet_length(message) AS size, expires_ms > ?4 AS is_kept FROM inbox_message \
             WHERE scope = ?1 AND name = ?2 ORDER BY id LIMIT ?3)";
    let count = connection.prepare_cached(count)?.query_row(params![place.scope, place.name, counted, now_ms], |row| {
        Ok((row.get::<_, usize>(0)?, row.get::<_, u64>(1)?, row.get::<_, u64>(2)?, row.get::<_, Option<u64>>(3)?))
    });
    let (seen, waiting, bytes, Some(oldest)) = count? else { return Ok(None) };
    let end = "SELECT substr(message, -?2) FROM inbox_message WHERE id = ?1";
    let end: Option<String> =
        connection.prepare_cached(end)?.query_row(params![oldest, TIME_CHARS], |row| row.get(0)).optional()?;
    Ok(Some(InboxSummary {
        place: place.clone(),
        waiting,
        bytes,
        has_more: seen >= counted,
        oldest_ms: end.as_deref().and_then(sent_ms),
    }))
}

/// Reads a page of a name's messages, oldest first.
pub(super) fn list(connection: &Connection, listing: &InboxListing, now_ms: u64) -> rusqlite::Result<InboxPage> {
    let InboxListing { place, behind, limit } = listing;
    let select = "SELECT id, message, expires_ms, format FROM inbox_message \
         WHERE scope = ?1 AND name = ?2 AND id > ?3 AND expires_ms > ?4 ORDER BY id LIMIT ?5";
    let mut select = connection.prepare_cached(select)?;
    let mut rows = select.query(params![place.scope, place.name, behind, now_ms, limit.saturating_add(1)])?;
    let (mut messages, mut size) = (Vec::new(), 0);
    // One message more than fits is read; it shows that there are more.
    while let Some(row) = rows.next()? {
        readable(row.get(3)?).map_err(unreadable)?;
        let message = Bytes::from(row.get::<_, String>(1)?);
        let is_beyond = size >= LISTED_SIZE_MAX;
        size += message.len();
        messages.push(WaitingMessage { id: row.get(0)?, message, expires_ms: row.get(2)? });
        if is_beyond {
            break;
        }
    }
    Ok(InboxPage::of(messages, *limit))
}

/// Deletes messages of a name.
pub(super) fn drop_messages(connection: &Connection, dropped: &InboxDrop) -> rusqlite::Result<DroppedMessages> {
    let InboxDrop { place: InboxPlace { scope, name }, ids, until, limit } = dropped;
    let top = "SELECT coalesce(max(id), 0) FROM inbox_message WHERE scope = ?1 AND name = ?2";
    let top = connection.prepare_cached(top)?.query_row(params![scope, name], |row| row.get(0))?;
    let count = match ids {
        Some(ids) => {
            let delete = "DELETE FROM inbox_message WHERE scope = ?1 AND name = ?2 \
                 AND id IN (SELECT value FROM json_each(?3))";
            connection.prepare_cached(delete)?.execute(params![scope, name, json(ids)])?
        }
        None => {
            let delete = "DELETE FROM inbox_message WHERE id IN (SELECT id FROM inbox_message \
                 WHERE scope = ?1 AND name = ?2 AND id <= ?3 ORDER BY id LIMIT ?4)";
            connection.prepare_cached(delete)?.execute(params![scope, name, until, limit])?
        }
    };
    Ok(DroppedMessages { count: count as u64, top })
}
