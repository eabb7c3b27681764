-- Lifecycle events that are told for certain (the ledger). The tables are those of PostgreSQL; only one node writes them.

-- Lives of the node: this one, and earlier ones until what they have left is told. They need no leases: no other process has the file open.
CREATE TABLE event_node (
    node TEXT NOT NULL,
    incarnation INTEGER NOT NULL,
    batch INTEGER NOT NULL,         -- the last batch that the life has written: a batch that is sent again is not written again
    PRIMARY KEY (node, incarnation)
) STRICT, WITHOUT ROWID;

-- Which lives hold a channel or a user.
CREATE TABLE event_holder (
    kind INTEGER NOT NULL,          -- 1 = a channel, 2 = a user
    key TEXT NOT NULL,
    node TEXT NOT NULL,
    incarnation INTEGER NOT NULL,
    PRIMARY KEY (kind, key, node, incarnation)
) STRICT, WITHOUT ROWID;
CREATE INDEX event_holder_life ON event_holder (node, incarnation, kind, key);

-- What was told of a channel or a user.
CREATE TABLE event_key (
    kind INTEGER NOT NULL,
    key TEXT NOT NULL,
    generation INTEGER NOT NULL,    -- odd = told as occupied or online, even = as vacated or offline
    empty_since_ms INTEGER,         -- since when nobody holds it; null = somebody does
    cause INTEGER,                  -- why nobody does: 1 = the last one left, 2 = a node went down, 3 = the node started again
    due_ms INTEGER,                 -- odd: when to tell that nobody holds it; even: when to forget it
    PRIMARY KEY (kind, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX event_key_empty ON event_key (due_ms) WHERE due_ms IS NOT NULL AND generation % 2 = 1;
CREATE INDEX event_key_over ON event_key (due_ms) WHERE due_ms IS NOT NULL AND generation % 2 = 0;

-- Connections that were told as connected and not as disconnected.
CREATE TABLE event_client (
    node TEXT NOT NULL,
    incarnation INTEGER NOT NULL,
    client TEXT NOT NULL,
    about TEXT NOT NULL,            -- JSON: what the event of its end needs
    PRIMARY KEY (node, incarnation, client)
) STRICT, WITHOUT ROWID;

-- One row: what keys without a row begin after, and the last incarnation that was given.
CREATE TABLE event_head (
    is_one INTEGER PRIMARY KEY CHECK (is_one = 1),
    forgotten INTEGER NOT NULL,     -- the highest generation of a key that was forgotten; even
    incarnation INTEGER NOT NULL
) STRICT;
INSERT INTO event_head (is_one, forgotten, incarnation) VALUES (1, 0, 0);

-- Events that wait for their endpoints: read by endpoint and lane, in the order of their ids, and deleted when they are delivered.
CREATE TABLE event_outbox (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    endpoint TEXT NOT NULL,
    lane INTEGER NOT NULL,
    made_ms INTEGER NOT NULL,
    body TEXT NOT NULL              -- the event as JSON
) STRICT;
CREATE INDEX event_outbox_lane ON event_outbox (endpoint, lane, id);

-- Which life delivers a lane.
CREATE TABLE event_lane (
    endpoint TEXT NOT NULL,
    lane INTEGER NOT NULL,
    node TEXT NOT NULL,
    incarnation INTEGER NOT NULL,
    seen_ms INTEGER NOT NULL,
    PRIMARY KEY (endpoint, lane)
) STRICT, WITHOUT ROWID;

-- Events that could not be delivered.
CREATE TABLE event_dead (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    endpoint TEXT NOT NULL,
    lane INTEGER NOT NULL,
    made_ms INTEGER NOT NULL,
    died_ms INTEGER NOT NULL,
    tries INTEGER NOT NULL,
    last_error TEXT NOT NULL,
    body TEXT NOT NULL
) STRICT;
CREATE INDEX event_dead_endpoint ON event_dead (endpoint, id);
