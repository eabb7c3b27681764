//! Changes of channels within one transaction. Publications get their positions, and publications beyond a channel's
//! limits are deleted in small steps.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use rusqlite::{Connection, OptionalExtension as _, params};
use touchline_protocol::stream::{ChannelName, Epoch, IDEMPOTENCY_KEY_TTL_MS, Offset, Run, StreamPosition};

use crate::batch::WriteResult;
use crate::publication::Append;

/// How long a repeated idempotency key returns the first result, milliseconds.
const KEY_MS: u64 = IDEMPOTENCY_KEY_TTL_MS;
/// The number of rows deleted in one step.
pub(super) const TRIM_STEP_ROWS: u64 = 512;
/// The number of channels trimmed in one step.
const CHANNELS: usize = 32;
/// The number of channels remembered between transactions.
const KNOWN_MAX: usize = 100_000;

/// A channel's row, or what it will be after the transaction is committed.
#[derive(Debug, Clone)]
struct ChannelRow {
    id: i64,
    epoch: u64,
    top: u64,
    oldest: u64,
    version: u64,
    version_epoch: Box<str>,
    ttl_ms: u64,
    meta_ttl_ms: u64,
    due_ms: u64,
    /// The number of the run that assigned the last offset. 0 = none.
    run: u64,
    is_changed: bool,
    /// True if columns other than `top` and `oldest` have changed.
    is_remade: bool,
    /// True if publications before `oldest` wait to be deleted.
    has_old: bool,
}

/// A cache of the rows of recently written channels. It is valid as long as transactions succeed. After a failure it
/// must be cleared.
#[derive(Debug)]
pub(super) struct ChannelRows {
    /// The current run of the database.
    run: Run,
    known: HashMap<ChannelName, ChannelRow>,
    changed: Vec<ChannelName>,
}

impl ChannelRows {
    /// Creates an empty cache. Publications get their positions in this run.
    pub(super) fn new(run: Run) -> Self {
        ChannelRows { run, known: HashMap::new(), changed: Vec::new() }
    }

    /// Clears the cache, so that rows are read again from the database.
    pub(super) fn forget(&mut self) {
        self.known.clear();
        self.changed.clear();
    }

    /// Stores a publication and assigns its position.
    pub(super) fn append(
        &mut self,
        connection: &Connection,
        append: &Append,
        now_ms: u64,
        epoch: u64,
    ) -> rusqlite::Result<WriteResult> {
        let channel = find_or_make(&mut self.known, connection, &append.channel, epoch)?;
        let Run { number, id: run } = self.run;
        let epoch = Epoch::from_bits(channel.epoch).in_run(run);
        let earlier = |offset| WriteResult::Appended { position: StreamPosition { offset, epoch }, is_new: false };
        if !append.key.is_empty() {
            let known = "SELECT offset FROM idempotency WHERE channel = ?1 AND key = ?2 AND expires_ms > ?3";
            let known = connection
                .prepare_cached(known)?
                .query_row(params![channel.id, append.key, now_ms], |row| row.get(0))
                .optional()?;
            if let Some(offset) = known {
                return Ok(earlier(Offset(offset)));
            }
        }
        if append.version > 0 {
            if *channel.version_epoch == *append.version_epoch && append.version <= channel.version {
                return Ok(earlier(Offset(channel.top)));
            }
            (channel.version, channel.version_epoch) = (append.version, append.version_epoch.clone());
            channel.is_remade = true;
        }
        channel.top += 1;
        if channel.run != number {
            begin_run(connection, channel, number)?;
        }
        let insert = "INSERT INTO publication (channel, offset, time_ms, format, data) VALUES (?1, ?2, ?3, 1, ?4)";
        connection.prepare_cached(insert)?.execute(params![
            channel.id,
            channel.top,
            append.time_ms,
            append.object()
        ])?;
        if !append.key.is_empty() {
            let remember =
                "INSERT OR REPLACE INTO idempotency (channel, key, offset, expires_ms) VALUES (?1, ?2, ?3, ?4)";
            connection.prepare_cached(remember)?.execute(params![
                channel.id,
                append.key,
                channel.top,
                now_ms + KEY_MS
            ])?;
        }
        let is_first = channel.oldest == channel.top;
        if is_first || (channel.ttl_ms, channel.meta_ttl_ms) != (append.retention.ttl_ms, append.retention.meta_ttl_ms)
        {
            (channel.ttl_ms, channel.meta_ttl_ms, channel.is_remade) =
                (append.retention.ttl_ms, append.retention.meta_ttl_ms, true);
            // If rows wait to be deleted, the next trim of the channel sets the time.
            if channel.due_ms != 0 {
                channel.due_ms = append.time_ms.saturating_add(append.retention.ttl_ms).min(i64::MAX as u64);
            }
        }
        let oldest = (channel.top + 1).saturating_sub(append.retention.size as u64);
        if oldest > channel.oldest {
            (channel.oldest, channel.has_old) = (oldest, true);
        }
        if !std::mem::replace(&mut channel.is_changed, true) {
            self.changed.push(append.channel.clone());
        }
        Ok(WriteResult::Appended { position: StreamPosition { offset: Offset(channel.top), epoch }, is_new: true })
    }

    /// Creates a channel if it does not exist. It is deleted at `due_ms` if nothing is published.
    pub(super) fn make(
        &mut self,
        connection: &Connection,
        name: &ChannelName,
        epoch: u64,
        due_ms: u64,
    ) -> rusqlite::Result<WriteResult> {
        let channel = find_or_make(&mut self.known, connection, name, epoch)?;
        if channel.top == 0 {
            channel.due_ms = due_ms;
            connection
                .prepare_cached("UPDATE channel SET due_ms = ?2 WHERE id = ?1")?
                .execute(params![channel.id, due_ms])?;
        }
        Ok(WriteResult::Made { epoch: channel.epoch, top: Offset(channel.top) })
    }

    /// Removes the history of a channel if the channel exists.
    pub(super) fn remove(&mut self, connection: &Connection, name: &ChannelName) -> rusqlite::Result<WriteResult> {
        // Appends of this transaction are only in the cache, so the removal must change the cache too.
        let Some(channel) = find(&mut self.known, connection, name)? else { return Ok(WriteResult::Nothing) };
        (channel.oldest, channel.has_old) = (channel.top + 1, true);
        // Rows beyond one step are deleted later.
        (channel.due_ms, channel.is_remade) = (0, true);
        if !std::mem::replace(&mut channel.is_changed, true) {
            self.changed.push(name.clone());
        }
        Ok(WriteResult::Nothing)
    }

    /// Writes the rows of the changed channels, and deletes publications beyond their limits. It is the last step of a
    /// transaction.
    pub(super) fn write_changed(&mut self, connection: &Connection) -> rusqlite::Result<()> {
        for name in self.changed.drain(..) {
            let Some(channel) = self.known.get_mut(&name) else { continue };
            channel.is_changed = false;
            if std::mem::take(&mut channel.has_old) {
                let delete = "DELETE FROM publication WHERE channel = ?1 AND offset IN \
                     (SELECT offset FROM publication WHERE channel = ?1 AND offset < ?2 ORDER BY offset LIMIT ?3)";
                if connection.prepare_cached(delete)?.execute(params![channel.id, channel.oldest, TRIM_STEP_ROWS])?
                    as u64
                    == TRIM_STEP_ROWS
                {
                    (channel.due_ms, channel.is_remade) = (0, true);
                }
            }
            let update = "UPDATE channel SET top = ?2, oldest = ?3 WHERE id = ?1";
            connection.prepare_cached(update)?.execute(params![channel.id, channel.top, channel.oldest])?;
            if std::mem::take(&mut channel.is_remade) {
                let update = "UPDATE channel SET version = ?2, version_epoch = ?3, ttl_ms = ?4, meta_ttl_ms = ?5, \
                     due_ms = ?6, run = ?7 WHERE id = ?1";
                connection.prepare_cached(update)?.execute(params![
                    channel.id,
                    channel.version as i64,
                    channel.version_epoch,
                    channel.ttl_ms,
                    channel.meta_ttl_ms,
                    channel.due_ms,
                    channel.run,
                ])?;
            }
        }
        if self.known.len() > KNOWN_MAX {
            self.known.clear();
        }
        Ok(())
    }

    /// Deletes some of the old publications of some channels, and expired keys. Returns whether there may be more.
    pub(super) fn trim(&mut self, connection: &Connection, now_ms: u64) -> rusqlite::Result<bool> {
        let due = "SELECT name FROM channel WHERE due_ms <= ?1 ORDER BY due_ms LIMIT ?2";
        let names = connection
            .prepare_cached(due)?
            .query_map(params![now_ms, CHANNELS], |row| row.get::<_, String>(0))?
            .collect::<Result<Vec<_>, _>>()?;
        let mut has_more = names.len() == CHANNELS;
        for name in &names {
            has_more |= self.trim_channel(connection, &name.as_str().into(), now_ms)?;
        }
        let keys = "DELETE FROM idempotency WHERE (channel, key) IN \
             (SELECT channel, key FROM idempotency WHERE expires_ms <= ?1 LIMIT ?2)";
        let forgotten = connection.prepare_cached(keys)?.execute(params![now_ms, TRIM_STEP_ROWS])?;
        Ok(has_more || forgotten as u64 == TRIM_STEP_ROWS)
    }

    fn trim_channel(&mut self, connection: &Connection, name: &ChannelName, now_ms: u64) -> rusqlite::Result<bool> {
        let channel = find_or_make(&mut self.known, connection, name, 0)?;
        // The clock may have been set back, so times need not rise with the offsets. Publications after a kept one are
        // kept too.
        let stays = "SELECT offset FROM \
             (SELECT offset, time_ms FROM publication WHERE channel = ?1 ORDER BY offset LIMIT ?4) \
             WHERE offset >= ?2 AND time_ms > ?3 ORDER BY offset LIMIT 1";
        let until_ms = now_ms.saturating_sub(channel.ttl_ms);
        let stays = connection
            .prepare_cached(stays)?
            .query_row(params![channel.id, channel.oldest, until_ms, TRIM_STEP_ROWS], |row| row.get::<_, i64>(0))
            .optional()?;
        let old = "DELETE FROM publication WHERE channel = ?1 AND offset IN \
             (SELECT offset FROM publication WHERE channel = ?1 AND offset < ?2 ORDER BY offset LIMIT ?3)";
        let deleted =
            connection.prepare_cached(old)?.execute(params![channel.id, stays.unwrap_or(i64::MAX), TRIM_STEP_ROWS])?;
        let first = "SELECT offset, time_ms FROM publication WHERE channel = ?1 ORDER BY offset LIMIT 1";
        let first = connection
            .prepare_cached(first)?
            .query_row([channel.id], |row| Ok((row.get::<_, u64>(0)?, row.get::<_, u64>(1)?)))
            .optional()?;
        match first {
            Some((offset, time_ms)) => {
                channel.oldest = channel.oldest.max(offset);
                channel.due_ms = if offset < channel.oldest { now_ms } else { time_ms + channel.ttl_ms };
            }
            // An empty channel is kept for its position, and for its keys, whose results are positions. Afterwards the
            // channel is deleted too.
            None if channel.oldest > channel.top && deleted == 0 && channel.due_ms != 0 => {
                let keyed = "SELECT max(expires_ms) FROM idempotency WHERE channel = ?1 AND expires_ms > ?2";
                if let Some(keyed_ms) =
                    connection.prepare_cached(keyed)?.query_row(params![channel.id, now_ms], |row| row.get(0))?
                {
                    channel.due_ms = keyed_ms;
                    connection
                        .prepare_cached("UPDATE channel SET due_ms = ?2 WHERE id = ?1")?
                        .execute(params![channel.id, keyed_ms])?;
                    return Ok(false);
                }
                connection.prepare_cached("DELETE FROM idempotency WHERE channel = ?1")?.execute([channel.id])?;
                connection.prepare_cached("DELETE FROM channel_run WHERE channel = ?1")?.execute([channel.id])?;
                connection.prepare_cached("DELETE FROM channel WHERE id = ?1")?.execute([channel.id])?;
                self.known.remove(name);
                return Ok(false);
            }
            None => {
                channel.oldest = channel.top + 1;
                channel.due_ms = now_ms + channel.meta_ttl_ms;
            }
        }
        connection.prepare_cached("UPDATE channel SET oldest = ?2, due_ms = ?3 WHERE id = ?1")?.execute(params![
            channel.id,
            channel.oldest,
            channel.due_ms
        ])?;
        Ok(deleted as u64 == TRIM_STEP_ROWS)
    }
}

/// Records that a run assigns its first offset in a channel, the channel's top. Deletes the runs without a kept
/// publication.
fn begin_run(connection: &Connection, channel: &mut ChannelRow, number: u64) -> rusqlite::Result<()> {
    let insert = "INSERT INTO channel_run (channel, run, first) VALUES (?1, ?2, ?3)";
    connection.prepare_cached(insert)?.execute(params![channel.id, number, channel.top])?;
    // The run of the oldest publication stays, because its first offset is the end of the previous run.
    let forget = "DELETE FROM channel_run WHERE channel = ?1 \
         AND run < (SELECT max(run) FROM channel_run WHERE channel = ?1 AND first < ?2)";
    connection.prepare_cached(forget)?.execute(params![channel.id, channel.oldest])?;
    (channel.run, channel.is_remade) = (number, true);
    Ok(())
}

/// The channel from the cache, from its row, or as a new row with this epoch.
fn find_or_make<'k>(
    known: &'k mut HashMap<ChannelName, ChannelRow>,
    connection: &Connection,
    name: &ChannelName,
    epoch: u64,
) -> rusqlite::Result<&'k mut ChannelRow> {
    if find(known, connection, name)?.is_none() {
        let insert = "INSERT INTO channel \
             (name, epoch, top, oldest, version, version_epoch, ttl_ms, meta_ttl_ms, due_ms, run) \
             VALUES (?1, ?2, 0, 1, 0, '', 0, 0, ?3, 0)";
        connection.prepare_cached(insert)?.execute(params![&**name, epoch as i64, i64::MAX])?;
    }
    find(known, connection, name)?.ok_or(rusqlite::Error::QueryReturnedNoRows)
}

/// The channel from the cache or from its row. `None` = it does not exist.
fn find<'k>(
    known: &'k mut HashMap<ChannelName, ChannelRow>,
    connection: &Connection,
    name: &ChannelName,
) -> rusqlite::Result<Option<&'k mut ChannelRow>> {
    let free = match known.entry(name.clone()) {
        Entry::Occupied(channel) => return Ok(Some(channel.into_mut())),
        Entry::Vacant(free) => free,
    };
    let select = "SELECT id, epoch, top, oldest, version, version_epoch, ttl_ms, meta_ttl_ms, due_ms, run \
         FROM channel WHERE name = ?1";
    let found = connection.prepare_cached(select)?.query_row([&**name], |row| {
        Ok(ChannelRow {
            id: row.get(0)?,
            epoch: row.get::<_, i64>(1)? as u64,
            top: row.get(2)?,
            oldest: row.get(3)?,
            version: row.get::<_, i64>(4)? as u64,
            version_epoch: row.get(5)?,
            ttl_ms: row.get(6)?,
            meta_ttl_ms: row.get(7)?,
            due_ms: row.get(8)?,
            run: row.get(9)?,
            is_changed: false,
            is_remade: false,
            has_old: false,
        })
    });
    Ok(found.optional()?.map(|channel| free.insert(channel)))
}
