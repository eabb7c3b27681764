//! When users were last connected to any node.

use tokio_postgres::{Client, Error};

use crate::seen::{SeenForgotten, SeenUser};

/// Records when users were connected. A later recorded time is kept. A transaction has only one such statement, which
/// processes its rows in the order of their names. So two nodes never wait for each other.
pub(super) async fn note(client: &Client, rows: &[SeenUser]) -> Result<(), Error> {
    let note = "INSERT INTO touchline.user_seen AS known (name, seen_s) \
         SELECT name, seen_s FROM unnest($1::text[], $2::bigint[]) AS seen (name, seen_s) ORDER BY name COLLATE \"C\" \
         ON CONFLICT (name) DO UPDATE SET seen_s = excluded.seen_s WHERE known.seen_s < excluded.seen_s";
    let names: Vec<&str> = rows.iter().map(|row| &*row.user).collect();
    let times: Vec<i64> = rows.iter().map(|row| row.seen_s as i64).collect();
    client.execute(note, &[&names, &times]).await.map(drop)
}

/// Returns which of these users were connected after a time, Unix seconds, and when last.
pub(super) async fn read(client: &Client, users: &[Box<str>], after_s: u64) -> Result<Vec<SeenUser>, Error> {
    let select = "SELECT name, seen_s FROM touchline.user_seen WHERE name = ANY($1) AND seen_s > $2";
    let names: Vec<&str> = users.iter().map(|user| &**user).collect();
    let rows = client.query(select, &[&names, &(after_s as i64)]).await?;
    let seen = |row: &tokio_postgres::Row| SeenUser {
        user: row.get::<_, &str>(0).into(),
        seen_s: u64::try_from(row.get::<_, i64>(1)).unwrap_or_default(),
    };
    Ok(rows.iter().map(seen).collect())
}

/// Deletes at most `limit` users that were not connected after a time, Unix seconds. Returns how many. Rows that
/// another node is changing are left for the next time.
pub(super) async fn expire(client: &Client, after_s: u64, limit: u64) -> Result<u64, Error> {
    let delete = "DELETE FROM touchline.user_seen WHERE name IN (SELECT name FROM touchline.user_seen \
         WHERE seen_s <= $1 LIMIT $2 FOR UPDATE SKIP LOCKED)";
    client.execute(delete, &[&(after_s as i64), &(limit as i64)]).await
}

/// Deletes the record of when a user was last connected. A row that another node is changing is skipped. A transaction
/// that waited for it could hold rows that the other one waits for.
pub(super) async fn forget(client: &Client, user: &str) -> Result<SeenForgotten, Error> {
    let delete = "WITH gone AS (DELETE FROM touchline.user_seen WHERE name IN (SELECT name FROM touchline.user_seen \
             WHERE name = $1 FOR UPDATE SKIP LOCKED) RETURNING 1) \
         SELECT EXISTS (SELECT FROM gone), EXISTS (SELECT FROM touchline.user_seen WHERE name = $1)";
    let row = client.query_one(delete, &[&user]).await?;
    // Both parts of the statement see the table as it was before.
    Ok(match (row.get::<_, bool>(0), row.get::<_, bool>(1)) {
        (true, _) => SeenForgotten::Deleted,
        (false, true) => SeenForgotten::Busy,
        (false, false) => SeenForgotten::Unknown,
    })
}
