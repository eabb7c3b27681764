-- Totals of reactions: a row for each start of a node and channel, which that node alone writes.
CREATE TABLE touchline.reaction (
    channel text COLLATE "C" NOT NULL,
    contributor text COLLATE "C" NOT NULL,  -- the node and a number of its start
    state bytea NOT NULL,                   -- JSON: what it has counted in the round, and what it knows of the round
    changed_ms bigint NOT NULL,
    PRIMARY KEY (channel, contributor)
);
CREATE INDEX reaction_changed ON touchline.reaction (changed_ms);
