//! Inbox messages. The writer's transaction changes them, and readers read them.

use bytes::Bytes;
use tokio_postgres::{Client, Error, Row};

use super::failure::PostgresError;
use super::numbers::signed;
use crate::inbox::{
    DroppedMessages, ExpiredMessage, InboxDrop, InboxListing, InboxMessage, InboxNames, InboxPage, InboxPlace,
    InboxSearch, InboxSummary, LISTED_SIZE_MAX, TIME_CHARS, VISITED_MAX, WaitingMessage, sent_ms,
};
use crate::rows::readable;

/// A page of names with messages. Each name is found by one index step, however many messages it has. The order is the
/// database's collation, in which names with the same prefix need not be adjacent. So a page ends after a number of
/// examined names, and its last row says where.
const NAMES: &str = "WITH RECURSIVE visited AS (\
         (SELECT scope, name, 1::bigint AS place FROM touchline.inbox_message \
             WHERE (scope, name) > ($1, $2) ORDER BY scope, name LIMIT 1) \
         UNION ALL \
         SELECT next.scope, next.name, visited.place + 1 FROM visited, LATERAL (\
             SELECT m.scope, m.name FROM touchline.inbox_message m \
             WHERE (m.scope, m.name) > (visited.scope, visited.name) ORDER BY m.scope, m.name LIMIT 1) next \
         WHERE visited.place < $5::bigint AND ($3::text IS NULL OR visited.scope = $3)) \
     SELECT v.scope, v.name, starts_with(v.name, $4), c.seen, c.waiting, c.bytes, \
         (SELECT right(o.message, $8::int) FROM touchline.inbox_message o WHERE o.id = c.oldest), v.place \
     FROM visited v CROSS JOIN LATERAL (\
         SELECT count(*) AS seen, count(*) FILTER (WHERE is_kept) AS waiting, \
             coalesce(sum(size) FILTER (WHERE is_kept), 0)::bigint AS bytes, min(id) FILTER (WHERE is_kept) AS oldest \
         FROM (SELECT m.id, octet_length(m.message) AS size, m.expires_ms > touchline.now_ms() AS is_kept \
             FROM touchline.inbox_message m WHERE m.scope = v.scope AND m.name = v.name AND starts_with(v.name, $4) \
             ORDER BY m.id LIMIT $6) kept) c \
     WHERE ($3::text IS NULL OR v.scope = $3) AND (starts_with(v.name, $4) OR v.place = $5) LIMIT $7";

/// Writes a message and notifies other nodes. `None` = the inbox is full. `expires_ms` and `now_ms` are by this node's
/// clock. The row expires by the database's clock, because the clocks of nodes may differ.
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

/// Deletes messages by their ids.
pub(super) async fn discard(client: &Client, ids: &[u64]) -> Result<(), Error> {
    let ids: Vec<i64> = ids.iter().map(|id| *id as i64).collect();
    client.execute("DELETE FROM touchline.inbox_message WHERE id = ANY($1)", &[&ids]).await.map(drop)
}

/// Deletes at most `limit` expired messages, and returns them.
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

/// Reads the messages of a name after an id, oldest first.
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

/// The scopes and names whose inboxes are not empty.
pub(super) async fn names_with_messages(client: &Client) -> Result<Vec<(String, String)>, Error> {
    let rows = client.query("SELECT DISTINCT scope, name FROM touchline.inbox_message", &[]).await?;
    Ok(rows.iter().map(|row| (row.get(0), row.get(1))).collect())
}

/// Reads a page of names with messages.
pub(super) async fn names(client: &Client, search: &InboxSearch) -> Result<InboxNames, Error> {
    let (visited, limit) = (VISITED_MAX as i64, signed(search.limit as u64));
    let counted = signed(search.counted() as u64);
    let after = match &search.scope {
        Some(scope) if search.after == InboxPlace::default() => {
            InboxPlace { scope: scope.clone(), ..search.after.clone() }
        }
        _ => search.after.clone(),
    };
    let rows = client
        .query(
            NAMES,
            &[
                &&*after.scope,
                &&*after.name,
                &search.scope.as_deref(),
                &&*search.prefix,
                &visited,
                &counted,
                &limit,
                &(TIME_CHARS as i32),
            ],
        )
        .await?;
    let place = |row: &Row| InboxPlace { scope: row.get::<_, &str>(0).into(), name: row.get::<_, &str>(1).into() };
    let number = |row: &Row, column: usize| row.get::<_, i64>(column) as u64;
    let is_shown = |row: &&Row| row.get::<_, bool>(2) && number(row, 4) > 0;
    let summary = |row: &Row| InboxSummary {
        place: place(row),
        waiting: number(row, 4),
        bytes: number(row, 5),
        has_more: number(row, 3) >= counted as u64,
        oldest_ms: row.get::<_, Option<&str>>(6).and_then(sent_ms),
    };
    let is_last = |row: &&Row| rows.len() as i64 >= limit || row.get::<_, i64>(7) >= visited;
    Ok(InboxNames {
        names: rows.iter().filter(is_shown).map(summary).collect(),
        next: rows.last().filter(is_last).map(place),
    })
}

/// Reads a page of a name's messages, oldest first.
pub(super) async fn list(client: &Client, listing: &InboxListing) -> Result<InboxPage, PostgresError> {
    let InboxListing { place, behind, limit } = listing;
    // One message more than fits is read; it shows that there are more.
    let select = "SELECT id, message, expires_ms, format FROM (\
             SELECT id, message, expires_ms, format, coalesce(sum(octet_length(message)) OVER (\
                 ORDER BY id ROWS BETWEEN UNBOUNDED PRECEDING AND 2 PRECEDING), 0) AS before \
             FROM (SELECT id, message, expires_ms, format FROM touchline.inbox_message \
                 WHERE scope = $1 AND name = $2 AND id > $3 AND expires_ms > touchline.now_ms() \
                 ORDER BY id LIMIT $4) found) sized \
         WHERE before < $5 ORDER BY id";
    let limit = signed(limit.saturating_add(1) as u64);
    let rows = client
        .query(select, &[&&*place.scope, &&*place.name, &signed(*behind), &limit, &(LISTED_SIZE_MAX as i64)])
        .await?;
    rows.iter().try_for_each(|row| readable(i64::from(row.get::<_, i16>(3))))?;
    let message = |row: &Row| WaitingMessage {
        id: row.get::<_, i64>(0) as u64,
        message: Bytes::from(row.get::<_, String>(1)),
        expires_ms: row.get::<_, i64>(2) as u64,
    };
    Ok(InboxPage::of(rows.iter().map(message).collect(), listing.limit))
}

/// Deletes messages of a name. Messages that another node is deleting are skipped, because waiting for it could cause a
/// deadlock.
pub(super) async fn drop_messages(client: &Client, dropped: &InboxDrop) -> Result<DroppedMessages, Error> {
    let InboxDrop { place: InboxPlace { scope, name }, ids, until, limit } = dropped;
    let top = "SELECT coalesce(max(id), 0) FROM touchline.inbox_message WHERE scope = $1 AND name = $2";
    let top: i64 = client.query_one(top, &[&&**scope, &&**name]).await?.get(0);
    let delete = "DELETE FROM touchline.inbox_message WHERE id IN (SELECT id FROM touchline.inbox_message \
         WHERE scope = $1 AND name = $2 AND id <= $3 AND ($5::bigint[] IS NULL OR id = ANY($5)) \
         ORDER BY id LIMIT $4 FOR UPDATE SKIP LOCKED)";
    let ids: Option<Vec<i64>> = ids.as_ref().map(|ids| ids.iter().map(|id| signed(*id)).collect());
    let count = client.execute(delete, &[&&**scope, &&**name, &signed(*until), &signed(*limit), &ids]).await?;
    Ok(DroppedMessages { count, top: top as u64 })
}
