//! The outbox of the ledger in PostgreSQL: which node delivers which lane, which events wait, and which could not be
//! delivered.

use tokio_postgres::Row;

use super::failure::PostgresError;
use super::ledger::PostgresLedger;
use super::ledger_link::LedgerLink;
use crate::ledger::types::{
    Burial, DeadLetter, ENDPOINT_IDLE_MS, LANE_IDLE_MS, LedgerError, LedgerShare, LedgerTidying, MEASURED_ROWS,
    OutboxLane, OwnLane, STEP_ROWS, WISH_IDLE_MS, WISH_SEEN_MS, WaitingEvent, millis,
};

impl PostgresLedger {
    pub(crate) async fn share(
        &self,
        incarnation: u64,
        (wanted, idle): (&[OutboxLane], &[OutboxLane]),
        knows: u64,
    ) -> Result<LedgerShare, LedgerError> {
        let (endpoints, lanes) = columns(wanted);
        let (idle_endpoints, idle_lanes) = columns(idle);
        let (me, life) = (&self.options.node, incarnation as i64);
        let mut loan = self.lend_lanes().await?;
        let link = &mut loan.link;
        link.run("BEGIN").await?;
        self.register(link).await?;
        let mut share = self.others(link, knows).await?;
        let claim = "SELECT endpoint, lane, events, size, oldest_ms, touchline.now_ms() \
             FROM touchline.event_share($1, $2, $3, $4, $5, $6, $7)";
        let measured = MEASURED_ROWS as i64;
        let claimed =
            [me as _, &life as _, &endpoints as _, &lanes as _, &idle_endpoints as _, &idle_lanes as _, &measured as _];
        for row in link.query(claim, &claimed).await? {
            let age_ms = row.get::<_, Option<i64>>(4).map_or(0, |oldest_ms| row.get::<_, i64>(5) - oldest_ms);
            share.lanes.push(OwnLane {
                lane: OutboxLane { endpoint: row.get(0), lane: row.get::<_, i32>(1) as u32 },
                events: row.get::<_, i64>(2) as u64,
                size: row.get::<_, i64>(3) as u64,
                oldest_ms: age_ms.max(0) as u64,
            });
        }
        link.run("COMMIT").await?;
        loan.keep();
        Ok(share)
    }

    /// Reads the wishes of other nodes, and which nodes there are.
    async fn others(&self, link: &mut LedgerLink, knows: u64) -> Result<LedgerShare, PostgresError> {
        let own: Vec<&str> = self.options.wishes.iter().map(|wish| &*wish.name).collect();
        let look = "SELECT head.wishes, \
             ARRAY(SELECT wish.name FROM touchline.event_endpoint wish \
                 WHERE wish.name = ANY ($1) AND wish.seen_ms > touchline.now_ms() - $2 \
                 GROUP BY wish.name HAVING count(*) > 1 ORDER BY wish.name), \
             ARRAY(SELECT DISTINCT life.node FROM touchline.event_node life \
                 WHERE life.lease_until_ms > (SELECT touchline.now_ms())), \
             EXISTS (SELECT FROM touchline.event_endpoint wish WHERE NOT wish.is_whole AND NOT EXISTS (\
                 SELECT FROM touchline.event_node life \
                 WHERE life.lease_until_ms > (SELECT touchline.now_ms()) AND life.knows < wish.version)) \
             FROM touchline.event_head head";
        let mut share = LedgerShare::default();
        // A wish in use is recorded as seen again after ten seconds.
        if let Some(row) = link.query(look, &[&own, &(3 * WISH_SEEN_MS)]).await?.first() {
            let version = row.get::<_, i64>(0) as u64;
            (share.differing, share.nodes, share.is_settling) = (row.get(1), row.get(2), row.get(3));
            if version != knows {
                share.wishes = Some(Self::wishes(link).await?);
            }
        }
        Ok(share)
    }

    pub(crate) async fn settle(&self) -> Result<bool, LedgerError> {
        let mut loan = self.lend_lanes().await?;
        let reset = self.options.narrator.tell_reset("start");
        let settled = loan.link.query("SELECT touchline.event_settle($1)", &[&reset]).await?;
        loan.keep();
        Ok(settled.first().is_some_and(|row| row.get::<_, i64>(0) > 0))
    }

    pub(crate) async fn fetch(
        &self,
        incarnation: u64,
        wanted: &[(OutboxLane, u32)],
    ) -> Result<Vec<(OutboxLane, Vec<WaitingEvent>)>, LedgerError> {
        let lanes: Vec<OutboxLane> = wanted.iter().map(|(lane, _)| lane.clone()).collect();
        let (endpoints, lanes) = columns(&lanes);
        let limits: Vec<i64> = wanted.iter().map(|(_, limit)| i64::from(*limit)).collect();
        let (me, life) = (&self.options.node, incarnation as i64);
        let mut loan = self.lend_lanes().await?;
        // A life that is over delivers nothing, even if its node has not noticed that yet.
        let fetch = "SELECT own.endpoint, own.lane, few.id, few.made_ms, few.body \
                         FROM unnest($3::text[], $4::int[], $5::bigint[]) AS item (endpoint, lane, most) \
                         JOIN touchline.event_lane own ON own.endpoint = item.endpoint AND own.lane = item.lane \
                         CROSS JOIN LATERAL (SELECT id, made_ms, body FROM touchline.event_outbox waiting \
                             WHERE waiting.endpoint = own.endpoint AND waiting.lane = own.lane \
                             ORDER BY id LIMIT item.most) few \
                         WHERE own.node = $1 AND own.incarnation = $2 AND EXISTS (\
                             SELECT FROM touchline.event_node live \
                             WHERE live.node = $1 AND live.incarnation = $2 \
                             AND live.lease_until_ms > (SELECT touchline.now_ms())) \
                         ORDER BY own.endpoint, own.lane, few.id";
        let rows = loan.link.query(fetch, &[me, &life, &endpoints, &lanes, &limits]).await?;
        loan.keep();
        let mut found: Vec<(OutboxLane, Vec<WaitingEvent>)> = Vec::new();
        for row in &rows {
            let lane = OutboxLane { endpoint: row.get(0), lane: row.get::<_, i32>(1) as u32 };
            let event = WaitingEvent {
                id: row.get::<_, i64>(2) as u64,
                made_ms: row.get::<_, i64>(3) as u64,
                body: row.get(4),
            };
            match found.last_mut() {
                Some((last, events)) if *last == lane => events.push(event),
                _ => found.push((lane, vec![event])),
            }
        }
        Ok(found)
    }

    pub(crate) async fn finish(&self, lane: &OutboxLane, ids: &[u64]) -> Result<(), LedgerError> {
        let ids: Vec<i64> = ids.iter().map(|id| *id as i64).collect();
        let mut loan = self.lend_lanes().await?;
        let delete = "DELETE FROM touchline.event_outbox WHERE endpoint = $1 AND lane = $2 AND id = ANY ($3)";
        loan.link.count(delete, &[&lane.endpoint, &(lane.lane as i32), &ids]).await?;
        loan.keep();
        Ok(())
    }

    pub(crate) async fn bury(&self, lane: &OutboxLane, burials: &[Burial]) -> Result<u64, LedgerError> {
        let ids: Vec<i64> = burials.iter().map(|burial| burial.id as i64).collect();
        let tries: Vec<i32> = burials.iter().map(|burial| burial.tries as i32).collect();
        let errors: Vec<&str> = burials.iter().map(|burial| &*burial.error).collect();
        let mut loan = self.lend_lanes().await?;
        let link = &mut loan.link;
        link.run("BEGIN").await?;
        let bury = "WITH gone AS (DELETE FROM touchline.event_outbox \
                         WHERE endpoint = $1 AND lane = $2 AND id = ANY ($3) RETURNING id, made_ms, body) \
                     INSERT INTO touchline.event_dead (endpoint, lane, made_ms, died_ms, tries, last_error, body) \
                     SELECT $1, $2, gone.made_ms, touchline.now_ms(), item.tries, item.error, gone.body FROM gone \
                     JOIN unnest($3::bigint[], $4::int[], $5::text[]) AS item (id, tries, error) ON item.id = gone.id \
                     ORDER BY gone.id";
        link.count(bury, &[&lane.endpoint, &(lane.lane as i32), &ids, &tries, &errors]).await?;
        let dropped = drop_oldest(link, self.options.dead_max as i64).await?;
        link.run("COMMIT").await?;
        loan.keep();
        Ok(dropped)
    }

    pub(crate) async fn tidy(&self) -> Result<LedgerTidying, LedgerError> {
        let (most, ttl_ms) = (self.options.lane_max as i64, millis(self.options.dead_ttl));
        let mut loan = self.lend_lanes().await?;
        let link = &mut loan.link;
        let old = "DELETE FROM touchline.event_dead WHERE id IN \
                         (SELECT id FROM touchline.event_dead ORDER BY id LIMIT $1) \
                     AND died_ms < (SELECT touchline.now_ms()) - $2";
        link.count(old, &[&STEP_ROWS, &ttl_ms]).await?;
        forget_wishes(link).await?;
        let mut tidying = LedgerTidying { retired: retire(link).await?, ..LedgerTidying::default() };
        let full = "SELECT endpoint, lane FROM touchline.event_lane known WHERE EXISTS (\
             SELECT FROM touchline.event_outbox waiting \
             WHERE waiting.endpoint = known.endpoint AND waiting.lane = known.lane AND waiting.id > 0 \
             ORDER BY waiting.id DESC OFFSET $1 LIMIT 1)";
        for row in link.query(full, &[&most]).await? {
            let (endpoint, lane): (String, i32) = (row.get(0), row.get(1));
            let reset = self.options.narrator.tell_reset("dropped");
            let shorten = "SELECT touchline.event_shorten($1, $2, $3, $4)";
            let shortened = link.query(shorten, &[&endpoint, &lane, &most, &reset]).await?;
            let dropped = shortened.first().map_or(0, |row| row.get::<_, i64>(0)) as u64;
            tidying.dropped.extend((dropped > 0).then_some((endpoint, dropped)));
        }
        let keep = self.options.keys_max as i64;
        let trimmed = link.query("SELECT touchline.event_trim($1, $2)", &[&keep, &STEP_ROWS]).await?;
        tidying.forgotten = trimmed.first().map_or(0, |row| row.get::<_, i64>(0)) as u64;
        tidying.has_more = tidying.forgotten >= STEP_ROWS as u64;
        loan.keep();
        Ok(tidying)
    }

    pub(crate) async fn dead_letters(
        &self,
        endpoint: Option<&str>,
        behind: u64,
        limit: u32,
    ) -> Result<Vec<DeadLetter>, LedgerError> {
        let mut loan = self.lend_lanes().await?;
        let link = &mut loan.link;
        let (behind, limit) = (behind as i64, i64::from(limit));
        let of_all = "SELECT id, endpoint, made_ms, died_ms, tries, last_error, body \
                         FROM touchline.event_dead WHERE id > $1 ORDER BY id LIMIT $2";
        let of_one = "SELECT id, endpoint, made_ms, died_ms, tries, last_error, body \
                         FROM touchline.event_dead WHERE id > $1 AND endpoint = $3 ORDER BY id LIMIT $2";
        let rows = match endpoint {
            Some(endpoint) => link.query(of_one, &[&behind, &limit, &endpoint]).await?,
            None => link.query(of_all, &[&behind, &limit]).await?,
        };
        loan.keep();
        Ok(rows.iter().map(dead_letter).collect())
    }

    pub(crate) async fn retry_dead(&self, ids: &[u64]) -> Result<u64, LedgerError> {
        let ids: Vec<i64> = ids.iter().map(|id| *id as i64).collect();
        let mut loan = self.lend_lanes().await?;
        // The age of the event starts again now.
        let retry = "WITH back AS (DELETE FROM touchline.event_dead WHERE id = ANY ($1) \
                         RETURNING id, endpoint, lane, body) \
                     INSERT INTO touchline.event_outbox (endpoint, lane, made_ms, body) \
                     SELECT endpoint, lane, touchline.now_ms(), body FROM back ORDER BY id";
        let retried = loan.link.count(retry, &[&ids]).await?;
        loan.keep();
        Ok(retried)
    }

    pub(crate) async fn drop_dead(&self, ids: &[u64]) -> Result<u64, LedgerError> {
        let ids: Vec<i64> = ids.iter().map(|id| *id as i64).collect();
        let mut loan = self.lend_lanes().await?;
        let dropped = loan.link.count("DELETE FROM touchline.event_dead WHERE id = ANY ($1)", &[&ids]).await?;
        loan.keep();
        Ok(dropped)
    }
}

/// Drops the oldest dead letters beyond the newest `most`, and returns how many.
async fn drop_oldest(link: &mut LedgerLink, most: i64) -> Result<u64, PostgresError> {
    // The ids alone can show that there are not too many.
    let spread = "SELECT coalesce(max(id) - min(id), 0) FROM touchline.event_dead";
    if link.query(spread, &[]).await?.first().is_none_or(|row| row.get::<_, i64>(0) < most) {
        return Ok(0);
    }
    let drop = "DELETE FROM touchline.event_dead WHERE id <= \
         (SELECT id FROM touchline.event_dead ORDER BY id DESC OFFSET $1 LIMIT 1)";
    link.count(drop, &[&most]).await
}

/// Removes the wishes of endpoints in descriptions that nodes no longer use.
async fn forget_wishes(link: &mut LedgerLink) -> Result<(), PostgresError> {
    let forget = "WITH gone AS (DELETE FROM touchline.event_endpoint old \
             WHERE old.seen_ms < (SELECT touchline.now_ms()) - $1 \
             OR old.seen_ms < (SELECT touchline.now_ms()) - $2 AND EXISTS (\
                 SELECT FROM touchline.event_endpoint newer WHERE newer.name = old.name \
                 AND newer.seen_ms >= (SELECT touchline.now_ms()) - $2) RETURNING 1) \
         UPDATE touchline.event_head SET wishes = wishes + 1 WHERE EXISTS (SELECT FROM gone)";
    link.count(forget, &[&ENDPOINT_IDLE_MS, &WISH_IDLE_MS]).await.map(drop)
}

/// Removes lanes of endpoints that no node has had for a week, with some of their waiting events. Returns how many.
async fn retire(link: &mut LedgerLink) -> Result<u64, PostgresError> {
    let retired = "SELECT endpoint, lane FROM touchline.event_lane WHERE seen_ms < (SELECT touchline.now_ms()) - $1";
    let mut dropped = 0;
    for row in link.query(retired, &[&LANE_IDLE_MS]).await? {
        let (endpoint, lane): (String, i32) = (row.get(0), row.get(1));
        let delete = "DELETE FROM touchline.event_outbox WHERE endpoint = $1 AND lane = $2 AND id IN \
             (SELECT id FROM touchline.event_outbox WHERE endpoint = $1 AND lane = $2 ORDER BY id LIMIT $3)";
        let gone = link.count(delete, &[&endpoint, &lane, &STEP_ROWS]).await?;
        if gone == 0 {
            link.count("DELETE FROM touchline.event_lane WHERE endpoint = $1 AND lane = $2", &[&endpoint, &lane])
                .await?;
        }
        dropped += gone;
    }
    Ok(dropped)
}

fn columns(lanes: &[OutboxLane]) -> (Vec<String>, Vec<i32>) {
    lanes.iter().map(|lane| (lane.endpoint.clone(), lane.lane as i32)).unzip()
}

fn dead_letter(row: &Row) -> DeadLetter {
    DeadLetter {
        id: row.get::<_, i64>(0) as u64,
        endpoint: row.get(1),
        made_ms: row.get::<_, i64>(2) as u64,
        died_ms: row.get::<_, i64>(3) as u64,
        tries: row.get::<_, i32>(4) as u32,
        last_error: row.get(5),
        body: row.get(6),
    }
}
