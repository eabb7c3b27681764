-- Channels that are durable: where each stands, and how long it keeps what.
CREATE TABLE channel (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    epoch INTEGER NOT NULL,
    top INTEGER NOT NULL,           -- the last offset; 0 = nothing was ever published
    oldest INTEGER NOT NULL,        -- the first offset that is kept; below it, rows only wait to be deleted
    version INTEGER NOT NULL,
    version_epoch TEXT NOT NULL,
    ttl_ms INTEGER NOT NULL,
    meta_ttl_ms INTEGER NOT NULL,
    due_ms INTEGER NOT NULL,        -- when there is something to trim: Unix milliseconds
    run INTEGER NOT NULL            -- the run that gave the last offset; 0 = none did
) STRICT;
CREATE INDEX channel_due ON channel (due_ms);

CREATE TABLE publication (
    channel INTEGER NOT NULL,
    offset INTEGER NOT NULL,
    time_ms INTEGER NOT NULL,
    format INTEGER NOT NULL,        -- of the rest of the row: 1
    data BLOB NOT NULL,             -- the publication as JSON, without its offset
    PRIMARY KEY (channel, offset)
) STRICT, WITHOUT ROWID;

-- Within a run the database only went forward. A new one begins whenever it is opened: it may have been set back to an earlier state.
CREATE TABLE run (
    number INTEGER PRIMARY KEY,
    id INTEGER NOT NULL             -- 40 random bits, a part of positions
) STRICT;

-- The first offset that each run gave in a channel. A position of a run is one of today's history if that run did not end before it.
CREATE TABLE channel_run (
    channel INTEGER NOT NULL,
    run INTEGER NOT NULL,
    first INTEGER NOT NULL,
    PRIMARY KEY (channel, run)
) STRICT, WITHOUT ROWID;

-- Results of keyed publishes, as long as a repeated one must give the first one's.
CREATE TABLE idempotency (
    channel INTEGER NOT NULL,
    key TEXT NOT NULL,
    offset INTEGER NOT NULL,
    expires_ms INTEGER NOT NULL,
    PRIMARY KEY (channel, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX idempotency_expires ON idempotency (expires_ms);
