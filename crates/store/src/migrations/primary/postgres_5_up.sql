-- When users were connected last, to any node.
CREATE TABLE touchline.user_seen (
    name text COLLATE "C" NOT NULL PRIMARY KEY,
    seen_s bigint NOT NULL          -- Unix seconds
);
CREATE INDEX user_seen_seen ON touchline.user_seen (seen_s);
