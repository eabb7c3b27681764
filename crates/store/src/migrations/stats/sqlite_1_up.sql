-- Rows stand in the order of time, so that old ones go from one end. Ids are Unix milliseconds times 2^20, and a serial.
CREATE TABLE connection (
    id INTEGER PRIMARY KEY,         -- when it was closed
    opened_ms INTEGER NOT NULL,
    transport TEXT NOT NULL,
    agent TEXT NOT NULL,
    code INTEGER NOT NULL           -- as on a WebSocket; 1006 = it broke off
) STRICT;

CREATE TABLE event (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    user TEXT NOT NULL,
    props TEXT NOT NULL             -- a JSON object
) STRICT;

-- Subscribers of a channel in a minute, each row by a part of the cluster.
CREATE TABLE audience (
    minute INTEGER NOT NULL,        -- since 1970
    channel TEXT NOT NULL,
    part TEXT NOT NULL,
    current INTEGER NOT NULL,       -- at its end
    peak INTEGER NOT NULL,
    users BLOB NOT NULL,            -- a sketch
    PRIMARY KEY (minute, channel, part)
) STRICT, WITHOUT ROWID;

CREATE TABLE traffic (
    minute INTEGER NOT NULL,
    namespace TEXT NOT NULL,
    part TEXT NOT NULL,
    publications INTEGER NOT NULL,
    deliveries INTEGER NOT NULL,
    PRIMARY KEY (minute, namespace, part)
) STRICT, WITHOUT ROWID;
