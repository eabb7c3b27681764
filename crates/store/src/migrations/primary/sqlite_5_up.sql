-- When users were connected last.
CREATE TABLE user_seen (
    name TEXT NOT NULL PRIMARY KEY,
    seen_s INTEGER NOT NULL         -- Unix seconds
) STRICT, WITHOUT ROWID;
CREATE INDEX user_seen_seen ON user_seen (seen_s);
