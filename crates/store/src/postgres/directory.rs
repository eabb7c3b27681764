//! The directory of channels. The writer's transaction changes it, and readers search it.

use std::collections::BTreeSet;

use tokio_postgres::{Client, Error, Row};

use crate::description::{ChannelDescription, Search, SearchResult};
use crate::refusal::StoreRefusal;
use crate::search::{COMPARED_MAX, in_order, rarest};
use crate::tfidf::{Weights, WordCounts, gather, rank, stems};

/// Replaces the description of a channel.
pub(super) async fn describe(
    client: &Client,
    description: &ChannelDescription,
    weights: &Weights,
) -> Result<(), Error> {
    let ChannelDescription { channel, title, description, kind, tags } = description;
    let tags = serde_json::to_string(tags).unwrap_or_default();
    let (terms, weights): (Vec<&str>, Vec<i64>) =
        weights.iter().map(|(term, weight)| (&**term, *weight as i64)).unzip();
    let describe = "SELECT touchline.describe($1, $2, $3, $4, $5, $6, $7)";
    client.execute(describe, &[channel, title, description, kind, &tags, &terms, &weights]).await.map(drop)
}

/// Deletes the description of a channel.
pub(super) async fn forget(client: &Client, channel: &str) -> Result<(), Error> {
    client.execute("SELECT touchline.forget($1)", &[&channel]).await.map(drop)
}

/// Runs a search in the directory.
pub(super) async fn search(client: &Client, search: &Search) -> Result<Result<Vec<SearchResult>, StoreRefusal>, Error> {
    Ok(match search {
        Search::Channel(channel) => match descriptions(client, &[channel]).await?.pop() {
            Some(description) => Ok(vec![SearchResult { description, score: 1.0 }]),
            None => Err(StoreRefusal::NotFound),
        },
        Search::Search { words, kind, tag, limit, offset } => {
            let stems: Vec<String> = stems(words).into_iter().collect::<BTreeSet<_>>().into_iter().collect();
            Ok(if stems.is_empty() {
                listed(client, kind, tag, *limit, *offset).await?
            } else {
                matching(client, stems, (kind, tag), *limit, *offset).await?
            })
        }
        Search::Similar { channel, limit } => similar(client, channel, *limit).await?.ok_or(StoreRefusal::NotFound),
    })
}

/// Whether a channel has a kind ($1) and a tag ($2), if these are given.
const FITS: &str = "($1 = '' OR i.type = $1) AND ($2 = '' OR i.tags::jsonb ? $2)";

/// All channels with a kind and a tag, by name.
async fn listed(
    client: &Client,
    kind: &str,
    tag: &str,
    limit: usize,
    offset: usize,
) -> Result<Vec<SearchResult>, Error> {
    let select = format!(
        "SELECT channel, title, description, type, tags FROM touchline.channel_info i WHERE {FITS} \
         ORDER BY channel COLLATE \"C\" LIMIT $3 OFFSET $4"
    );
    let rows = client.query(&select, &[&kind, &tag, &(limit as i64), &(offset as i64)]).await?;
    Ok(rows.iter().map(|row| SearchResult { description: description(row), score: 0.0 }).collect())
}

/// Channels that contain all given words, the best match first.
async fn matching(
    client: &Client,
    stems: Vec<String>,
    (kind, tag): (&str, &str),
    limit: usize,
    offset: usize,
) -> Result<Vec<SearchResult>, Error> {
    let select = format!(
        "SELECT t.info FROM touchline.channel_term t JOIN touchline.channel_info i ON i.id = t.info \
         WHERE t.term = ANY($3) AND {FITS} GROUP BY t.info HAVING count(*) = $4 ORDER BY t.info LIMIT $5"
    );
    let rows = client.query(&select, &[&kind, &tag, &stems, &(stems.len() as i64), &(COMPARED_MAX as i64)]).await?;
    let (channels, mut counts) = vectors(client, &ids(&rows)).await?;
    counts.0.extend(self::counts(client, &stems).await?.0);
    let query: Weights = stems.into_iter().map(|stem| (stem, 1)).collect();
    let page = rank(&query, channels, &counts).into_iter().skip(offset).take(limit).collect();
    shown(client, page).await
}

async fn similar(client: &Client, channel: &str, limit: usize) -> Result<Option<Vec<SearchResult>>, Error> {
    let Some(row) = client.query_opt("SELECT id FROM touchline.channel_info WHERE channel = $1", &[&channel]).await?
    else {
        return Ok(None);
    };
    let id: i64 = row.get(0);
    let (own, of_own) = vectors(client, &[id]).await?;
    let Some((_, query)) = own.into_iter().next() else { return Ok(None) };
    let words = rarest(&query, |term| of_own.0.get(term).copied().unwrap_or_default());
    let select =
        "SELECT DISTINCT info FROM touchline.channel_term WHERE term = ANY($1) AND info <> $2 ORDER BY info LIMIT $3";
    let rows = client.query(select, &[&words, &id, &(COMPARED_MAX as i64)]).await?;
    let (channels, mut counts) = vectors(client, &ids(&rows)).await?;
    counts.0.extend(of_own.0);
    let page = rank(&query, channels, &counts).into_iter().take(limit).collect();
    shown(client, page).await.map(Some)
}

/// The words of some channels, and the counts of these words.
async fn vectors(client: &Client, ids: &[i64]) -> Result<(Vec<(String, Weights)>, WordCounts), Error> {
    let select = "SELECT i.channel, t.term, t.weight, n.channels FROM touchline.channel_info i \
         JOIN touchline.channel_term t ON t.info = i.id JOIN touchline.term n ON n.term = t.term \
         WHERE i.id = ANY($1) ORDER BY i.id, t.term";
    let rows = client.query(select, &[&ids]).await?;
    Ok(gather(rows.iter().map(|row| (row.get(0), row.get(1), number(row, 2), number(row, 3)))))
}

async fn counts(client: &Client, terms: &[String]) -> Result<WordCounts, Error> {
    let rows =
        client.query("SELECT term, channels FROM touchline.term WHERE term = ANY($1) OR term = ''", &[&terms]).await?;
    Ok(WordCounts(rows.iter().map(|row| (row.get(0), number(row, 1))).collect()))
}

async fn shown(client: &Client, ranked: Vec<(String, f64)>) -> Result<Vec<SearchResult>, Error> {
    let channels: Vec<&String> = ranked.iter().map(|(channel, _)| channel).collect();
    let descriptions = descriptions(client, &channels).await?;
    Ok(in_order(ranked, descriptions))
}

async fn descriptions(client: &Client, channels: &[&String]) -> Result<Vec<ChannelDescription>, Error> {
    let select = "SELECT channel, title, description, type, tags FROM touchline.channel_info WHERE channel = ANY($1)";
    Ok(client.query(select, &[&channels]).await?.iter().map(description).collect())
}

fn description(row: &Row) -> ChannelDescription {
    let tags = serde_json::from_str(row.get(4)).unwrap_or_default();
    ChannelDescription { channel: row.get(0), title: row.get(1), description: row.get(2), kind: row.get(3), tags }
}

fn ids(rows: &[Row]) -> Vec<i64> {
    rows.iter().map(|row| row.get(0)).collect()
}

fn number(row: &Row, column: usize) -> u64 {
    row.get::<_, i64>(column) as u64
}
