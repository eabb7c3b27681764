//! The outbox of the ledger in SQLite: which events wait in which lane, and which could not be delivered. One node
//! delivers all lanes.

use std::collections::BTreeSet;

use rusqlite::{OptionalExtension as _, Row, Transaction, params};
use touchline_engine::ledger::{EventRoute, WishList};

use super::ledger::{SqliteLedger, wishes};
use crate::ledger::types::{
    Burial, DeadLetter, LANE_IDLE_MS, LedgerError, LedgerShare, LedgerTidying, MEASURED_ROWS, OutboxLane, OwnLane,
    STEP_ROWS, WaitingEvent, millis,
};

/// After this time a lane is recorded as seen again, milliseconds.
const SEEN_MS: i64 = 3_600_000;

impl SqliteLedger {
    /// Returns all lanes of this node: the wanted ones, and those that contain events of its endpoints. There is no
    /// other node.
    pub(crate) async fn share(&self, wanted: &[OutboxLane], _: u64) -> Result<LedgerShare, LedgerError> {
        let wanted = wanted.to_vec();
        self.transact(move |ledger, rows| {
            let see = "INSERT INTO event_lane (endpoint, lane, node, incarnation, seen_ms) VALUES (?1, ?2, '', 0, ?3) \
                 ON CONFLICT (endpoint, lane) DO UPDATE SET seen_ms = ?3 WHERE seen_ms < ?3 - ?4";
            let mut see = rows.prepare_cached(see)?;
            for lane in &wanted {
                see.execute(params![lane.endpoint, lane.lane, ledger.now_ms(), SEEN_MS])?;
            }
            // It includes lanes of an earlier description, because events are put into them.
            let list = WishList { version: 0, wishes: wishes(rows)? };
            let is_wanted = |endpoint: &str| wanted.iter().any(|wanted| wanted.endpoint == endpoint);
            for (endpoint, lane) in list.lanes(EventRoute { word: None, namespace: None, place: 0 }) {
                if is_wanted(endpoint) {
                    see.execute(params![endpoint, lane, ledger.now_ms(), SEEN_MS])?;
                }
            }
            let mut lanes = all_lanes(rows)?;
            lanes.retain(|lane| wanted.iter().any(|wanted| wanted.endpoint == lane.endpoint));
            let mut share = LedgerShare::default();
            let measure = "SELECT count(*), coalesce(sum(octet_length(body)), 0), min(made_ms) FROM (\
                 SELECT body, made_ms FROM event_outbox WHERE endpoint = ?1 AND lane = ?2 ORDER BY id LIMIT ?3)";
            let mut measure = rows.prepare_cached(measure)?;
            for lane in lanes {
                let (events, size, made_ms): (u64, u64, Option<i64>) = measure
                    .query_row(params![lane.endpoint, lane.lane, MEASURED_ROWS], |row| {
                        Ok((row.get(0)?, row.get(1)?, row.get(2)?))
                    })?;
                let oldest_ms = made_ms.map_or(0, |made_ms| ledger.now_ms() - made_ms).max(0) as u64;
                share.lanes.push(OwnLane { lane, events, size, oldest_ms });
            }
            let unsettled = "SELECT EXISTS (SELECT 1 FROM event_endpoint WHERE is_whole = 0)";
            share.is_settling = rows.query_row(unsettled, [], |row| row.get(0))?;
            Ok(share)
        })
        .await
    }

    pub(crate) async fn settle(&self) -> Result<bool, LedgerError> {
        self.transact(|ledger, rows| {
            let settle = "UPDATE event_endpoint SET is_whole = 1 WHERE is_whole = 0 RETURNING name";
            let settled = rows
                .prepare_cached(settle)?
                .query_map([], |row| row.get(0))?
                .collect::<rusqlite::Result<BTreeSet<String>>>()?;
            let list = WishList { version: 0, wishes: wishes(rows)? };
            let (reset, now_ms) = (ledger.options.narrator.tell_reset("start"), ledger.now_ms());
            let insert = "INSERT INTO event_outbox (endpoint, lane, made_ms, body) VALUES (?1, ?2, ?3, ?4)";
            for (endpoint, lane) in list.lanes(EventRoute { word: None, namespace: None, place: 0 }) {
                if settled.contains(endpoint) {
                    rows.execute(insert, params![endpoint, lane, now_ms, reset])?;
                }
            }
            Ok(!settled.is_empty())
        })
        .await
    }

    pub(crate) async fn fetch(
        &self,
        wanted: &[(OutboxLane, u32)],
    ) -> Result<Vec<(OutboxLane, Vec<WaitingEvent>)>, LedgerError> {
        let wanted = wanted.to_vec();
        self.transact(move |_, rows| {
            let fetch = "SELECT id, made_ms, body FROM event_outbox WHERE endpoint = ?1 AND lane = ?2 \
                 ORDER BY id LIMIT ?3";
            let mut fetch = rows.prepare_cached(fetch)?;
            let mut found = Vec::new();
            for (lane, limit) in wanted {
                let events = fetch
                    .query_map(params![lane.endpoint, lane.lane, limit], |row| {
                        Ok(WaitingEvent { id: row.get::<_, i64>(0)? as u64, made_ms: row.get(1)?, body: row.get(2)? })
                    })?
                    .collect::<rusqlite::Result<Vec<_>>>()?;
                if !events.is_empty() {
                    found.push((lane, events));
                }
            }
            Ok(found)
        })
        .await
    }

    pub(crate) async fn finish(&self, ids: &[u64]) -> Result<(), LedgerError> {
        // The first events of a lane that was too long have negative ids.
        let ids: Vec<i64> = ids.iter().map(|id| *id as i64).collect();
        self.transact(move |_, rows| {
            let mut delete = rows.prepare_cached("DELETE FROM event_outbox WHERE id = ?1")?;
            ids.iter().try_for_each(|id| delete.execute([id]).map(drop))
        })
        .await
    }

    pub(crate) async fn bury(&self, burials: &[Burial]) -> Result<u64, LedgerError> {
        let burials = burials.to_vec();
        self.transact(move |ledger, rows| {
            let insert = "INSERT INTO event_dead (endpoint, lane, made_ms, died_ms, tries, last_error, body) \
                 SELECT endpoint, lane, made_ms, ?2, ?3, ?4, body FROM event_outbox WHERE id = ?1";
            let (mut insert, mut delete) =
                (rows.prepare_cached(insert)?, rows.prepare_cached("DELETE FROM event_outbox WHERE id = ?1")?);
            for burial in &burials {
                insert.execute(params![burial.id as i64, ledger.now_ms(), burial.tries, burial.error])?;
                delete.execute([burial.id as i64])?;
            }
            drop_oldest(rows, ledger.options.dead_max)
        })
        .await
    }

    pub(crate) async fn tidy(&self) -> Result<LedgerTidying, LedgerError> {
        self.transact(|ledger, rows| {
            let old = "DELETE FROM event_dead WHERE id IN (SELECT id FROM event_dead ORDER BY id LIMIT ?1) \
                 AND died_ms < ?2";
            rows.execute(old, params![STEP_ROWS, ledger.now_ms() - millis(ledger.options.dead_ttl)])?;
            let mut tidying = LedgerTidying {
                retired: retire(rows, ledger.now_ms() - LANE_IDLE_MS)?,
                forgotten: ledger.trim(rows)?,
                ..LedgerTidying::default()
            };
            tidying.has_more = tidying.forgotten >= STEP_ROWS as u64;
            for lane in all_lanes(rows)? {
                let dropped = ledger.shorten(rows, &lane)?;
                tidying.dropped.extend((dropped > 0).then_some((lane.endpoint, dropped)));
            }
            Ok(tidying)
        })
        .await
    }

    /// Drops the oldest events of a lane that has too many, and puts `state.reset` before all remaining events.
    fn shorten(&self, rows: &Transaction<'_>, lane: &OutboxLane) -> rusqlite::Result<u64> {
        let OutboxLane { endpoint, lane } = lane;
        let last = "SELECT id FROM event_outbox WHERE endpoint = ?1 AND lane = ?2 AND id > 0 \
             ORDER BY id DESC LIMIT 1 OFFSET ?3";
        let last =
            rows.prepare_cached(last)?.query_row(params![endpoint, lane, self.options.lane_max], |row| row.get(0));
        let Some(last) = last.optional()? else { return Ok(0) };
        let last: i64 = last;
        // The `state.reset` of an earlier drop is deleted with them.
        let drop = "DELETE FROM event_outbox WHERE endpoint = ?1 AND lane = ?2 AND id <= ?3 RETURNING id";
        let gone = rows
            .prepare_cached(drop)?
            .query_map(params![endpoint, lane, last], |row| row.get(0))?
            .collect::<rusqlite::Result<Vec<i64>>>()?;
        // No id is used twice: an earlier event may be in delivery, and is finished by its id.
        let put = "INSERT INTO event_outbox (id, endpoint, lane, made_ms, body) VALUES (?1, ?2, ?3, ?4, ?5)";
        rows.execute(put, params![-last, endpoint, lane, self.now_ms(), self.options.narrator.tell_reset("dropped")])?;
        Ok(gone.into_iter().filter(|id| *id > 0).count() as u64)
    }

    /// Forgets keys beyond the maximum; keys that were reported first are forgotten first.
    fn trim(&self, rows: &Transaction<'_>) -> rusqlite::Result<u64> {
        let count = "SELECT count(*) FROM event_key WHERE due_ms IS NOT NULL AND generation % 2 = 0";
        let surplus = rows.query_row(count, [], |row| row.get::<_, u64>(0))?.saturating_sub(self.options.keys_max);
        if surplus == 0 {
            return Ok(0);
        }
        let forget = "DELETE FROM event_key WHERE (kind, key) IN \
             (SELECT kind, key FROM event_key WHERE due_ms IS NOT NULL AND generation % 2 = 0 \
                 ORDER BY due_ms, kind, key LIMIT ?1) RETURNING generation";
        let gone = rows
            .prepare_cached(forget)?
            .query_map([surplus.min(STEP_ROWS as u64)], |row| row.get(0))?
            .collect::<rusqlite::Result<Vec<i64>>>()?;
        let highest = gone.iter().max().copied().unwrap_or_default();
        rows.execute("UPDATE event_head SET forgotten = max(forgotten, ?1)", [highest])?;
        Ok(gone.len() as u64)
    }

    pub(crate) async fn dead_letters(
        &self,
        endpoint: Option<&str>,
        behind: u64,
        limit: u32,
    ) -> Result<Vec<DeadLetter>, LedgerError> {
        let endpoint = endpoint.map(str::to_owned);
        self.transact(move |_, rows| {
            let of_all = "SELECT id, endpoint, made_ms, died_ms, tries, last_error, body \
                 FROM event_dead WHERE id > ?1 ORDER BY id LIMIT ?2";
            let of_one = "SELECT id, endpoint, made_ms, died_ms, tries, last_error, body \
                 FROM event_dead WHERE id > ?1 AND endpoint = ?3 ORDER BY id LIMIT ?2";
            match endpoint {
                Some(endpoint) => {
                    rows.prepare_cached(of_one)?.query_map(params![behind, limit, endpoint], dead_letter)?.collect()
                }
                None => rows.prepare_cached(of_all)?.query_map(params![behind, limit], dead_letter)?.collect(),
            }
        })
        .await
    }

    pub(crate) async fn retry_dead(&self, ids: &[u64]) -> Result<u64, LedgerError> {
        let ids = ids.to_vec();
        self.transact(move |ledger, rows| {
            // The age of the event starts again now.
            let back = "INSERT INTO event_outbox (endpoint, lane, made_ms, body) \
                 SELECT endpoint, lane, ?2, body FROM event_dead WHERE id = ?1";
            let mut back = rows.prepare_cached(back)?;
            let mut retried = 0;
            for id in &ids {
                retried += back.execute(params![id, ledger.now_ms()])? as u64;
            }
            delete_dead(rows, &ids)?;
            Ok(retried)
        })
        .await
    }

    pub(crate) async fn drop_dead(&self, ids: &[u64]) -> Result<u64, LedgerError> {
        let ids = ids.to_vec();
        self.transact(move |_, rows| delete_dead(rows, &ids)).await
    }
}

fn all_lanes(rows: &Transaction<'_>) -> rusqlite::Result<Vec<OutboxLane>> {
    rows.prepare_cached("SELECT endpoint, lane FROM event_lane")?
        .query_map([], |row| Ok(OutboxLane { endpoint: row.get(0)?, lane: row.get(1)? }))?
        .collect()
}

fn delete_dead(rows: &Transaction<'_>, ids: &[u64]) -> rusqlite::Result<u64> {
    let mut delete = rows.prepare_cached("DELETE FROM event_dead WHERE id = ?1")?;
    ids.iter().try_fold(0, |deleted, id| Ok(deleted + delete.execute([id])? as u64))
}

/// Drops the oldest dead letters beyond the newest `most`, and returns how many.
fn drop_oldest(rows: &Transaction<'_>, most: u64) -> rusqlite::Result<u64> {
    // The ids alone can show that there are not too many.
    let spread = "SELECT coalesce(max(id) - min(id), 0) FROM event_dead";
    if rows.query_row(spread, [], |row| row.get::<_, u64>(0))? < most {
        return Ok(0);
    }
    let drop = "DELETE FROM event_dead WHERE id <= (SELECT id FROM event_dead ORDER BY id DESC LIMIT 1 OFFSET ?1)";
    Ok(rows.execute(drop, [most])? as u64)
}

/// Removes lanes of endpoints that were not seen since a time, with some of their waiting events. Returns how many.
fn retire(rows: &Transaction<'_>, since_ms: i64) -> rusqlite::Result<u64> {
    let retired = "SELECT endpoint, lane FROM event_lane WHERE seen_ms < ?1 LIMIT 1";
    let found: Option<(String, u32)> =
        rows.query_row(retired, [since_ms], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
    let Some((endpoint, lane)) = found else { return Ok(0) };
    let delete = "DELETE FROM event_outbox WHERE id IN \
         (SELECT id FROM event_outbox WHERE endpoint = ?1 AND lane = ?2 ORDER BY id LIMIT ?3)";
    let gone = rows.execute(delete, params![endpoint, lane, STEP_ROWS])? as u64;
    if gone == 0 {
        rows.execute("DELETE FROM event_lane WHERE endpoint = ?1 AND lane = ?2", params![endpoint, lane])?;
    }
    Ok(gone)
}

fn dead_letter(row: &Row<'_>) -> rusqlite::Result<DeadLetter> {
    Ok(DeadLetter {
        id: row.get(0)?,
        endpoint: row.get(1)?,
        made_ms: row.get(2)?,
        died_ms: row.get(3)?,
        tries: row.get(4)?,
        last_error: row.get(5)?,
        body: row.get(6)?,
    })
}
