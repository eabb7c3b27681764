//! Shared facts. The writer's transaction changes them, and the task that listens to other nodes follows them.
//!
//! Changes are committed in the order of their revisions. So a node that has seen a revision has seen all earlier ones.

use std::time::{Duration, Instant};

use tokio_postgres::{Client, Error, Row};
use touchline_protocol::fact::{AGE_MAX, Fact, FactChange, FactKey, FactsEvent};

use super::connection::with_timeout;
use super::failure::PostgresError;
use super::numbers::signed;
use crate::events::{EventSink, StoreEvent};
use crate::facts::FactListing;
use crate::rows::readable;

/// The number of rows that are read at a time.
const PAGE_ROWS: i64 = 10_000;

/// Writes or removes a fact. Returns the new revision.
pub(super) async fn change(client: &Client, change: &FactChange) -> Result<u64, Error> {
    let FactKey { kind, name } = change.key();
    let (value, until_s) = match change {
        FactChange::Put(fact) => (Some(&*fact.value), i64::try_from(fact.expires_s).unwrap_or(i64::MAX)),
        FactChange::Remove(_) => (None, 0),
    };
    let change = "SELECT touchline.change_fact($1, $2, $3, $4)";
    let row = client.query_one(change, &[&&**kind, &&**name, &value, &until_s]).await?;
    Ok(row.get::<_, i64>(0) as u64)
}

/// Reads a page of the facts that hold.
pub(super) async fn list(client: &Client, listing: &FactListing) -> Result<Vec<Fact>, PostgresError> {
    let FactKey { kind, name } = listing.start();
    let (now_s, limit) = (signed(listing.now_s), signed(listing.limit as u64));
    let select = match listing.kind {
        Some(_) => {
            "SELECT kind, name, value, expires_s, revision, format FROM touchline.fact WHERE value IS NOT NULL \
             AND kind = $1 AND name > $2 AND (expires_s = 0 OR expires_s > $3) ORDER BY name LIMIT $4"
        }
        None => {
            "SELECT kind, name, value, expires_s, revision, format FROM touchline.fact WHERE value IS NOT NULL \
             AND (kind, name) > ($1, $2) AND (expires_s = 0 OR expires_s > $3) ORDER BY kind, name LIMIT $4"
        }
    };
    let rows = client.query(select, &[&&*kind, &&*name, &now_s, &limit]).await?;
    let mut facts = Vec::with_capacity(rows.len());
    for row in &rows {
        if let FactChange::Put(fact) = change_of(row)? {
            facts.push(fact);
        }
    }
    Ok(facts)
}

/// Deletes at most `limit` expired facts, and returns how many.
pub(super) async fn expire(client: &Client, limit: u64) -> Result<u64, Error> {
    let row = client.query_one("SELECT touchline.trim_facts($1)", &[&(limit as i64)]).await?;
    Ok(row.get::<_, i64>(0) as u64)
}

/// The state of a connection that follows the facts.
#[derive(Default)]
pub(super) struct FactFollower {
    /// The last known revision, and a time at which all changes up to it were known. `None` = nothing is known.
    known: Option<(i64, Instant)>,
}

impl FactFollower {
    /// Reads the changes, or everything if necessary, and reports them. `timeout` applies to each answer.
    ///
    /// # Errors
    /// An error of PostgreSQL, or no answer came in time. The knowledge must not become older than [`AGE_MAX`].
    pub(super) async fn follow(
        &mut self,
        client: &Client,
        timeout: Duration,
        events: &EventSink,
    ) -> Result<(), PostgresError> {
        let began = Instant::now();
        let left = self.known.map_or(timeout, |(_, at)| (at + AGE_MAX).saturating_duration_since(began).min(timeout));
        let head = "SELECT revision, forgotten FROM touchline.fact_head";
        let head = with_timeout(left, async { Ok(client.query_opt(head, &[]).await?) }).await?;
        let (revision, forgotten): (i64, i64) = head.map_or((0, 0), |head| (head.get(0), head.get(1)));
        match self.known {
            Some((known, _)) if known == revision => self.known = Some((revision, began)),
            // No removal after the known revision has been forgotten, and the database was not set back.
            Some((known, _)) if (forgotten..revision).contains(&known) => {
                let left = left.saturating_sub(began.elapsed());
                let known = with_timeout(left, read_changes(known, revision, client, events)).await?;
                self.known = Some((known, began));
            }
            _ => {
                load(revision, client, timeout, events).await?;
                // Later changes follow at once, because this node was notified of them.
                self.known = Some((revision, Instant::now()));
            }
        }
        Ok(())
    }
}

/// Loads all facts. `timeout` applies to each page.
async fn load(revision: i64, client: &Client, timeout: Duration, events: &EventSink) -> Result<(), PostgresError> {
    let select = "SELECT kind, name, value, expires_s, revision, format FROM touchline.fact \
         WHERE value IS NOT NULL AND (kind, name) > ($1, $2) ORDER BY kind, name LIMIT $3";
    let mut facts: Vec<Fact> = Vec::new();
    loop {
        let (kind, name) = facts.last().map_or(("", ""), |last| (&*last.key.kind, &*last.key.name));
        let page = async { Ok(client.query(select, &[&kind, &name, &PAGE_ROWS]).await?) };
        let rows = with_timeout(timeout, page).await?;
        for row in &rows {
            if let FactChange::Put(fact) = change_of(row)? {
                facts.push(fact);
            }
        }
        if (rows.len() as i64) < PAGE_ROWS {
            break;
        }
    }
    events(StoreEvent::Facts(FactsEvent::Loaded { facts, revision: revision as u64 }));
    Ok(())
}

/// Reads and reports the changes after a revision, at least up to another one. Returns the revision that it reached.
async fn read_changes(mut known: i64, until: i64, client: &Client, events: &EventSink) -> Result<i64, PostgresError> {
    let select = "SELECT kind, name, value, expires_s, revision, format FROM touchline.fact \
         WHERE revision > $1 ORDER BY revision LIMIT $2";
    loop {
        let rows = client.query(select, &[&known, &PAGE_ROWS]).await?;
        let changes = rows.iter().map(change_of).collect::<Result<Vec<_>, _>>()?;
        known = rows.last().map_or(known, |last| last.get(4));
        let is_last = (rows.len() as i64) < PAGE_ROWS;
        if is_last {
            // The removal of a fact that did not exist leaves no row.
            known = known.max(until);
        }
        events(StoreEvent::Facts(FactsEvent::Changed { changes, revision: known as u64 }));
        if is_last {
            return Ok(known);
        }
    }
}

fn change_of(row: &Row) -> Result<FactChange, PostgresError> {
    readable(i64::from(row.get::<_, i16>(5)))?;
    let key = FactKey { kind: row.get::<_, String>(0).into(), name: row.get::<_, String>(1).into() };
    Ok(match row.get::<_, Option<String>>(2) {
        Some(value) => FactChange::Put(Fact { key, value: value.into(), expires_s: row.get::<_, i64>(3) as u64 }),
        None => FactChange::Remove(key),
    })
}
