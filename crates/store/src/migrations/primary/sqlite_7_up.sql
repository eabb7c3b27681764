-- Totals of reactions: a row for each start of a node and channel, as in PostgreSQL.
CREATE TABLE reaction (
    channel TEXT NOT NULL,
    contributor TEXT NOT NULL,      -- the node and a number of its start
    state BLOB NOT NULL,            -- JSON: what it has counted in the round, and what it knows of the round
    changed_ms INTEGER NOT NULL,
    PRIMARY KEY (channel, contributor)
) STRICT, WITHOUT ROWID;
CREATE INDEX reaction_changed ON reaction (changed_ms);
