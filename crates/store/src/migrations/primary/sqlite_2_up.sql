-- What is known of channels, and the words by which they are found.
CREATE TABLE channel_info (
    id INTEGER PRIMARY KEY,
    channel TEXT NOT NULL UNIQUE,
    title TEXT NOT NULL,
    description TEXT NOT NULL,
    type TEXT NOT NULL,
    tags TEXT NOT NULL              -- a JSON array of texts
) STRICT;

-- How much each word says of a channel: its count in each field, by the field's weight.
CREATE TABLE channel_term (
    term TEXT NOT NULL,
    info INTEGER NOT NULL,
    weight INTEGER NOT NULL,
    PRIMARY KEY (term, info)
) STRICT, WITHOUT ROWID;
CREATE INDEX channel_term_info ON channel_term (info);

-- In how many channels a word is; the empty word is in all.
CREATE TABLE term (
    term TEXT PRIMARY KEY,
    channels INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Messages to names, until their owners have acknowledged them.
CREATE TABLE inbox_message (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    scope TEXT NOT NULL,
    name TEXT NOT NULL,
    message TEXT NOT NULL,          -- JSON
    expires_ms INTEGER NOT NULL,
    format INTEGER NOT NULL         -- of the message: 1
) STRICT;
CREATE INDEX inbox_message_name ON inbox_message (scope, name, id);
CREATE INDEX inbox_message_expires ON inbox_message (expires_ms);
