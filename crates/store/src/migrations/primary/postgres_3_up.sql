-- Facts that all nodes share, such as bans.
CREATE TABLE touchline.fact (
    kind text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    value text,                     -- a JSON object; null = the fact was removed
    expires_s bigint NOT NULL,      -- Unix seconds; 0 = never
    revision bigint NOT NULL,
    format smallint NOT NULL,       -- of the value: 1
    PRIMARY KEY (kind, name)
);
CREATE INDEX fact_revision ON touchline.fact (revision);
CREATE INDEX fact_expires ON touchline.fact (expires_s) WHERE expires_s > 0;

-- One row. Who changes a fact locks it until the commit: so changes are committed in the order of their revisions.
CREATE TABLE touchline.fact_head (
    is_one boolean PRIMARY KEY DEFAULT true CHECK (is_one),
    revision bigint NOT NULL,       -- of the last change
    forgotten bigint NOT NULL       -- of the last change of which no row is left: who knows less has to read all
);
INSERT INTO touchline.fact_head (revision, forgotten) VALUES (0, 0);

-- Writes a fact, or removes it (said: null). A removal leaves a row for an hour, for nodes that follow. Returns the revision.
CREATE FUNCTION touchline.change_fact(of_kind text, of_name text, said text, until_s bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    made bigint;
BEGIN
    UPDATE touchline.fact_head SET revision = revision + 1 RETURNING revision INTO made;
    IF said IS NULL THEN
        UPDATE touchline.fact SET value = NULL, revision = made, expires_s = touchline.now_ms() / 1000 + 3600
            WHERE kind = of_kind AND name = of_name AND value IS NOT NULL;
    ELSE
        INSERT INTO touchline.fact (kind, name, value, expires_s, revision, format) VALUES (of_kind, of_name, said, until_s, made, 1)
            ON CONFLICT (kind, name) DO UPDATE SET value = said, expires_s = until_s, revision = made, format = 1;
    END IF;
    -- No id of a node begins so.
    PERFORM pg_notify('touchline', '!' || made);
    RETURN made;
END
$$;

-- Deletes facts that do not hold any more, a minute later, and old removals; at most so many. Returns how many.
CREATE FUNCTION touchline.trim_facts(most bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    due_s bigint := touchline.now_ms() / 1000 - 60;
    trimmed bigint;
    last bigint;
BEGIN
    IF NOT EXISTS (SELECT FROM touchline.fact WHERE expires_s > 0 AND expires_s <= due_s) THEN
        RETURN 0;
    END IF;
    -- The same lock comes first as in a change.
    PERFORM FROM touchline.fact_head FOR UPDATE;
    WITH gone AS (
        DELETE FROM touchline.fact WHERE (kind, name) IN (
            SELECT due.kind, due.name FROM touchline.fact due WHERE due.expires_s > 0 AND due.expires_s <= due_s LIMIT most
        ) RETURNING revision
    ) SELECT count(*), max(revision) INTO trimmed, last FROM gone;
    UPDATE touchline.fact_head SET forgotten = greatest(forgotten, last);
    RETURN trimmed;
END
$$;
