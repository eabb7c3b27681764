//! The directory of channels. The writer's transaction changes it, and readers search it.

use rusqlite::types::FromSql;
use rusqlite::{Connection, OptionalExtension as _, Row, params};

use super::parameters::json;
use crate::description::{ChannelDescription, Search, SearchResult};
use crate::refusal::StoreRefusal;
use crate::search::{COMPARED_MAX, in_order, rarest};
use crate::tfidf::{Weights, WordCounts, gather, rank, stems};

/// Replaces the description of a channel.
pub(super) fn describe(
    connection: &Connection,
    description: &ChannelDescription,
    weights: &Weights,
) -> rusqlite::Result<()> {
    forget(connection, &description.channel)?;
    let ChannelDescription { channel, title, description, kind, tags } = description;
    let insert = "INSERT INTO channel_info (channel, title, description, type, tags) VALUES (?1, ?2, ?3, ?4, ?5)";
    connection.prepare_cached(insert)?.execute(params![channel, title, description, kind, json(tags)])?;
    let id = connection.last_insert_rowid();
    for (term, weight) in weights {
        let insert = "INSERT INTO channel_term (term, info, weight) VALUES (?1, ?2, ?3)";
        connection.prepare_cached(insert)?.execute(params![term, id, weight])?;
        let count =
            "INSERT INTO term (term, channels) VALUES (?1, 1) ON CONFLICT DO UPDATE SET channels = channels + 1";
        connection.prepare_cached(count)?.execute([term])?;
    }
    Ok(())
}

/// Deletes the description of a channel.
pub(super) fn forget(connection: &Connection, channel: &str) -> rusqlite::Result<()> {
    let id = "SELECT id FROM channel_info WHERE channel = ?1";
    let Some(id) = connection.prepare_cached(id)?.query_row([channel], |row| row.get::<_, i64>(0)).optional()? else {
        return Ok(());
    };
    for statement in [
        "UPDATE term SET channels = channels - 1 WHERE term IN (SELECT term FROM channel_term WHERE info = ?1)",
        "DELETE FROM term WHERE channels = 0 AND term IN (SELECT term FROM channel_term WHERE info = ?1)",
        "DELETE FROM channel_term WHERE info = ?1",
        "DELETE FROM channel_info WHERE id = ?1",
    ] {
        connection.prepare_cached(statement)?.execute([id])?;
    }
    Ok(())
}

/// Runs a search within one transaction, so that its results are of the same moment.
pub(super) fn search(
    connection: &Connection,
    search: &Search,
) -> rusqlite::Result<Result<Vec<SearchResult>, StoreRefusal>> {
    let transaction = connection.unchecked_transaction()?;
    Ok(match search {
        Search::Channel(channel) => match descriptions(&transaction, &[channel])?.pop() {
            Some(description) => Ok(vec![SearchResult { description, score: 1.0 }]),
            None => Err(StoreRefusal::NotFound),
        },
        Search::Search { words, kind, tag, limit, offset } => {
            let stems: Vec<String> =
                stems(words).into_iter().collect::<std::collections::BTreeSet<_>>().into_iter().collect();
            Ok(if stems.is_empty() {
                listed(&transaction, kind, tag, *limit, *offset)?
            } else {
                matching(&transaction, stems, (kind, tag), *limit, *offset)?
            })
        }
        Search::Similar { channel, limit } => similar(&transaction, channel, *limit)?.ok_or(StoreRefusal::NotFound),
    })
}

/// Whether a channel has a kind (?1) and a tag (?2), if these are given.
const FITS: &str =
    "(?1 = '' OR i.type = ?1) AND (?2 = '' OR EXISTS (SELECT 1 FROM json_each(i.tags) WHERE value = ?2))";

/// All channels with a kind and a tag, by name.
fn listed(
    connection: &Connection,
    kind: &str,
    tag: &str,
    limit: usize,
    offset: usize,
) -> rusqlite::Result<Vec<SearchResult>> {
    let select = format!(
        "SELECT channel, title, description, type, tags FROM channel_info i WHERE {FITS} \
         ORDER BY channel LIMIT ?3 OFFSET ?4"
    );
    let mut select = connection.prepare_cached(&select)?;
    let results = select.query_map(params![kind, tag, limit, offset], |row| {
        Ok(SearchResult { description: description(row)?, score: 0.0 })
    })?;
    results.collect()
}

/// Channels that contain all given words, the best match first.
fn matching(
    connection: &Connection,
    stems: Vec<String>,
    (kind, tag): (&str, &str),
    limit: usize,
    offset: usize,
) -> rusqlite::Result<Vec<SearchResult>> {
    let select = format!(
        "SELECT t.info FROM channel_term t JOIN channel_info i ON i.id = t.info \
         WHERE t.term IN (SELECT value FROM json_each(?3)) AND {FITS} \
         GROUP BY t.info HAVING count(*) = ?4 ORDER BY t.info LIMIT ?5"
    );
    let ids = column::<i64>(connection, &select, params![kind, tag, json(&stems), stems.len(), COMPARED_MAX])?;
    let (channels, mut counts) = vectors(connection, &ids)?;
    counts.0.extend(self::counts(connection, &stems)?.0);
    let query: Weights = stems.into_iter().map(|stem| (stem, 1)).collect();
    let page = rank(&query, channels, &counts).into_iter().skip(offset).take(limit).collect();
    shown(connection, page)
}

fn similar(connection: &Connection, channel: &str, limit: usize) -> rusqlite::Result<Option<Vec<SearchResult>>> {
    let id = "SELECT id FROM channel_info WHERE channel = ?1";
    let Some(id) = connection.prepare_cached(id)?.query_row([channel], |row| row.get::<_, i64>(0)).optional()? else {
        return Ok(None);
    };
    let (own, of_own) = vectors(connection, &[id])?;
    let Some((_, query)) = own.into_iter().next() else { return Ok(None) };
    let words = rarest(&query, |term| of_own.0.get(term).copied().unwrap_or_default());
    let select = "SELECT DISTINCT info FROM channel_term \
         WHERE term IN (SELECT value FROM json_each(?1)) AND info <> ?2 ORDER BY info LIMIT ?3";
    let ids = column::<i64>(connection, select, params![json(&words), id, COMPARED_MAX])?;
    let (channels, mut counts) = vectors(connection, &ids)?;
    counts.0.extend(of_own.0);
    let page = rank(&query, channels, &counts).into_iter().take(limit).collect();
    shown(connection, page).map(Some)
}

/// The words of some channels, and the counts of these words.
fn vectors(connection: &Connection, ids: &[i64]) -> rusqlite::Result<(Vec<(String, Weights)>, WordCounts)> {
    let select = "SELECT i.channel, t.term, t.weight, n.channels \
         FROM json_each(?1) wanted JOIN channel_info i ON i.id = wanted.value JOIN channel_term t ON t.info = i.id \
         JOIN term n ON n.term = t.term ORDER BY i.id, t.term";
    let mut select = connection.prepare_cached(select)?;
    let rows = select.query_map([json(ids)], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)))?;
    Ok(gather(rows.collect::<rusqlite::Result<Vec<_>>>()?))
}

fn counts(connection: &Connection, terms: &[String]) -> rusqlite::Result<WordCounts> {
    let select = "SELECT term, channels FROM term WHERE term IN (SELECT value FROM json_each(?1)) OR term = ''";
    let mut select = connection.prepare_cached(select)?;
    let rows = select.query_map([json(terms)], |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok(WordCounts(rows.collect::<rusqlite::Result<_>>()?))
}

fn shown(connection: &Connection, ranked: Vec<(String, f64)>) -> rusqlite::Result<Vec<SearchResult>> {
    let channels: Vec<&String> = ranked.iter().map(|(channel, _)| channel).collect();
    let descriptions = descriptions(connection, &channels)?;
    Ok(in_order(ranked, descriptions))
}

fn descriptions(connection: &Connection, channels: &[&String]) -> rusqlite::Result<Vec<ChannelDescription>> {
    let select = "SELECT channel, title, description, type, tags FROM channel_info \
         WHERE channel IN (SELECT value FROM json_each(?1))";
    let mut select = connection.prepare_cached(select)?;
    select.query_map([json(channels)], description)?.collect()
}

fn description(row: &Row<'_>) -> rusqlite::Result<ChannelDescription> {
    let tags = serde_json::from_str(&row.get::<_, String>(4)?).unwrap_or_default();
    Ok(ChannelDescription {
        channel: row.get(0)?,
        title: row.get(1)?,
        description: row.get(2)?,
        kind: row.get(3)?,
        tags,
    })
}

fn column<T: FromSql>(
    connection: &Connection,
    select: &str,
    parameters: impl rusqlite::Params,
) -> rusqlite::Result<Vec<T>> {
    connection.prepare_cached(select)?.query_map(parameters, |row| row.get(0))?.collect()
}
