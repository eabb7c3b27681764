//! Totals of reactions from all nodes.

use bytes::Bytes;
use tokio_postgres::{Client, Error, Row};

use crate::reactions::{ReactionPlace, ReactionRow};

/// Writes rows and replaces existing ones. No other node writes these rows.
pub(super) async fn keep(client: &Client, rows: &[ReactionRow]) -> Result<(), Error> {
    let keep = "INSERT INTO touchline.reaction (channel, contributor, state, changed_ms) \
         SELECT * FROM unnest($1::text[], $2::text[], $3::bytea[], $4::bigint[]) \
         ON CONFLICT (channel, contributor) DO UPDATE SET state = excluded.state, changed_ms = excluded.changed_ms";
    let channels: Vec<&str> = rows.iter().map(|row| &*row.channel).collect();
    let contributors: Vec<&str> = rows.iter().map(|row| &*row.contributor).collect();
    let states: Vec<&[u8]> = rows.iter().map(|row| &row.state[..]).collect();
    let times: Vec<i64> = rows.iter().map(|row| row.changed_ms as i64).collect();
    client.execute(keep, &[&channels, &contributors, &states, &times]).await.map(drop)
}

/// Reads at most `limit` rows after a place.
pub(super) async fn read(client: &Client, after: &ReactionPlace, limit: usize) -> Result<Vec<ReactionRow>, Error> {
    let select = "SELECT channel, contributor, state, changed_ms FROM touchline.reaction \
         WHERE (channel, contributor) > ($1, $2) ORDER BY channel, contributor LIMIT $3";
    let rows = client.query(select, &[&&*after.0, &&*after.1, &(limit as i64)]).await?;
    let read = |row: &Row| ReactionRow {
        channel: row.get::<_, &str>(0).into(),
        contributor: row.get::<_, &str>(1).into(),
        state: Bytes::from(row.get::<_, Vec<u8>>(2)),
        changed_ms: u64::try_from(row.get::<_, i64>(3)).unwrap_or_default(),
    };
    Ok(rows.iter().map(read).collect())
}

/// Deletes at most `limit` rows of channels in which nothing has changed since a time, Unix milliseconds. Returns how
/// many. Rows that a node is changing are left for the next time.
pub(super) async fn expire(client: &Client, before_ms: u64, limit: u64) -> Result<u64, Error> {
    let delete = "DELETE FROM touchline.reaction WHERE (channel, contributor) IN (\
         SELECT channel, contributor FROM touchline.reaction old WHERE old.changed_ms < $1 AND NOT EXISTS (\
         SELECT FROM touchline.reaction newer WHERE newer.channel = old.channel AND newer.changed_ms >= $1) \
         LIMIT $2 FOR UPDATE SKIP LOCKED)";
    client.execute(delete, &[&(before_ms as i64), &(limit as i64)]).await
}
