//! Inbox messages: written within the writer's transaction, read by readers.

use bytes::Bytes;
use tokio_postgres::{Client, Error};

use super::failure::PostgresError;
use crate::inbox::{ExpiredMessage, InboxMessage};
use crate::rows::readable;

/// Writes a message, and notifies other nodes; none = the inbox is full. `expires_ms` is by the clock of this node, of
/// `now_ms`; the row expires by the clock of the database, since the clocks of nodes may differ.
pub(super) async fn queue(
    client: &Client,
    queued: &InboxMessage,
    now_ms: u64,
    notifier: &str,
) -> Result<Option<u64>, Error> {
    let InboxMessage { scope, name, message, expires_ms, limit } = queued;
    let message = std::str::from_utf8(message).unwrap_or_default();
    let limit = i64::try_from(*limit).unwrap_or(i64::MAX);
    let ttl_ms = expires_ms.saturating_sub(now_ms) as i64;
    let queue = "SELECT touchline.store_message($1, $2, $3, touchline.now_ms() + $4, $5, $6)";
    let row = client.query_one(queue, &[&&**scope, &&**name, &message, &ttl_ms, &limit, &notifier]).await?;
    Ok(row.get::<_, Option<i64>>(0).map(|id| id as u64))
}

/// Deletes messages.
pub(super) async fn discard(client: &Client, ids: &[u64]) -> Result<(), Error> {
    let ids: Vec<i64> = ids.iter().map(|id| *id as i64).collect();
    client.execute("DELETE FROM touchline.inbox_message WHERE id = ANY($1)", &[&ids]).await.map(drop)
}

/// Deletes expired messages, at most `limit`, and returns them.
pub(super) async fn expire(client: &Client, limit: u64) -> Result<Vec<ExpiredMessage>, Error> {
    let delete = "DELETE FROM touchline.inbox_message WHERE id IN (SELECT id FROM touchline.inbox_message \
         WHERE expires_ms <= touchline.now_ms() LIMIT $1 FOR UPDATE SKIP LOCKED) RETURNING id, scope, name, expires_ms";
    let rows = client.query(delete, &[&(limit as i64)]).await?;
    let expired = rows.iter().map(|row| ExpiredMessage {
        id: row.get::<_, i64>(0) as u64,
        scope: row.get::<_, String>(1).into(),
        name: row.get::<_, String>(2).into(),
        expires_ms: row.get::<_, i64>(3) as u64,
    });
    Ok(expired.collect())
}

/// Messages to a name after an id, oldest first.
pub(super) async fn read(
    client: &Client,
    scope: &str,
    name: &str,
    behind: u64,
    limit: usize,
) -> Result<Vec<(u64, Bytes)>, PostgresError> {
    let select = "SELECT id, message, format FROM touchline.inbox_message \
         WHERE scope = $1 AND name = $2 AND id > $3 AND expires_ms > touchline.now_ms() ORDER BY id LIMIT $4";
    let rows = client.query(select, &[&scope, &name, &(behind as i64), &(limit as i64)]).await?;
    rows.iter().try_for_each(|row| readable(i64::from(row.get::<_, i16>(2))))?;
    Ok(rows.iter().map(|row| (row.get::<_, i64>(0) as u64, Bytes::from(row.get::<_, String>(1)))).collect())
}

/// Scopes and names whose inboxes are not empty.
pub(super) async fn names_with_messages(client: &Client) -> Result<Vec<(String, String)>, Error> {
    let rows = client.query("SELECT DISTINCT scope, name FROM touchline.inbox_message", &[]).await?;
    Ok(rows.iter().map(|row| (row.get(0), row.get(1))).collect())
}
