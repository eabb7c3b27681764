//! Totals of reactions.

use bytes::Bytes;
use rusqlite::{Connection, params};

use crate::reactions::{ReactionPlace, ReactionRow};

/// Writes rows and replaces existing ones.
pub(super) fn keep(connection: &Connection, rows: &[ReactionRow]) -> rusqlite::Result<()> {
    let keep = "INSERT INTO reaction (channel, contributor, state, changed_ms) VALUES (?1, ?2, ?3, ?4) \
         ON CONFLICT (channel, contributor) DO UPDATE SET state = ?3, changed_ms = ?4";
    let mut keep = connection.prepare_cached(keep)?;
    rows.iter().try_for_each(|row| {
        keep.execute(params![row.channel, row.contributor, &row.state[..], row.changed_ms]).map(drop)
    })
}

/// Reads at most `limit` rows after a place.
pub(super) fn read(connection: &Connection, after: &ReactionPlace, limit: usize) -> rusqlite::Result<Vec<ReactionRow>> {
    let select = "SELECT channel, contributor, state, changed_ms FROM reaction \
         WHERE (channel, contributor) > (?1, ?2) ORDER BY channel, contributor LIMIT ?3";
    let mut select = connection.prepare_cached(select)?;
    let rows = select.query_map(params![after.0, after.1, limit], |row| {
        let texts = (row.get::<_, String>(0)?.into(), row.get::<_, String>(1)?.into());
        let state = Bytes::from(row.get::<_, Vec<u8>>(2)?);
        Ok(ReactionRow { channel: texts.0, contributor: texts.1, state, changed_ms: row.get(3)? })
    })?;
    rows.collect()
}

/// Deletes at most `limit` rows of channels in which nothing has changed since a time, Unix milliseconds. Returns how
/// many.
pub(super) fn expire(connection: &Connection, before_ms: u64, limit: u64) -> rusqlite::Result<u64> {
    let delete = "DELETE FROM reaction WHERE (channel, contributor) IN (\
         SELECT channel, contributor FROM reaction old WHERE old.changed_ms < ?1 AND NOT EXISTS (\
         SELECT 1 FROM reaction newer WHERE newer.channel = old.channel AND newer.changed_ms >= ?1) LIMIT ?2)";
    Ok(connection.prepare_cached(delete)?.execute(params![before_ms, limit])? as u64)
}
