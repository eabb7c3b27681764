-- Facts that all nodes share, such as bans.
CREATE TABLE fact (
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    value TEXT NOT NULL,            -- a JSON object
    expires_s INTEGER NOT NULL,     -- Unix seconds; 0 = never
    format INTEGER NOT NULL,        -- of the value: 1
    PRIMARY KEY (kind, name)
) STRICT, WITHOUT ROWID;
CREATE INDEX fact_expires ON fact (expires_s) WHERE expires_s > 0;
