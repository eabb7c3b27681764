-- A partition for each day, so that old ones are dropped whole.
CREATE TABLE touchline_stats.connection (
    minute bigint NOT NULL,         -- since 1970
    closed_ms bigint NOT NULL,
    opened_ms bigint NOT NULL,
    transport text NOT NULL,
    agent text NOT NULL,
    code bigint NOT NULL            -- as on a WebSocket; 1006 = it broke off
) PARTITION BY RANGE (minute);
CREATE INDEX connection_minute ON touchline_stats.connection (minute);

CREATE TABLE touchline_stats.event (
    minute bigint NOT NULL,
    time_ms bigint NOT NULL,
    name text NOT NULL,
    "user" text NOT NULL,
    props text NOT NULL             -- a JSON object
) PARTITION BY RANGE (minute);
CREATE INDEX event_minute ON touchline_stats.event (minute);

-- Subscribers of a channel in a minute, each row by a part of the cluster.
CREATE TABLE touchline_stats.audience (
    minute bigint NOT NULL,
    channel text NOT NULL,
    part text NOT NULL,
    current bigint NOT NULL,        -- at its end
    peak bigint NOT NULL,
    users bytea NOT NULL,           -- a sketch
    PRIMARY KEY (minute, channel, part)
) PARTITION BY RANGE (minute);

CREATE TABLE touchline_stats.traffic (
    minute bigint NOT NULL,
    namespace text NOT NULL,
    part text NOT NULL,
    publications bigint NOT NULL,
    deliveries bigint NOT NULL,
    PRIMARY KEY (minute, namespace, part)
) PARTITION BY RANGE (minute);

-- Makes the partitions of some days (since 1970) that are not there. One node at a time.
CREATE FUNCTION touchline_stats.prepare(days bigint[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    day bigint;
    family text;
BEGIN
    PERFORM pg_advisory_xact_lock(8390891508475491444); -- "touchst" and a byte, as a number
    FOREACH day IN ARRAY days LOOP
        FOREACH family IN ARRAY ARRAY['connection', 'event', 'audience', 'traffic'] LOOP
            IF to_regclass(format('touchline_stats.%s_%s', family, day)) IS NULL THEN
                EXECUTE format('CREATE TABLE touchline_stats.%s_%s PARTITION OF touchline_stats.%s FOR VALUES FROM (%s) TO (%s)',
                    family, day, family, day * 1440, (day + 1) * 1440);
            END IF;
        END LOOP;
    END LOOP;
END
$$;

-- Drops the partitions of all days before one. How many.
CREATE FUNCTION touchline_stats.drop_before(first_day bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    old record;
    dropped bigint := 0;
BEGIN
    PERFORM pg_advisory_xact_lock(8390891508475491444);
    FOR old IN SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE n.nspname = 'touchline_stats' AND c.relkind = 'r' AND c.relname ~ '^(connection|event|audience|traffic)_[0-9]+$'
            AND split_part(c.relname, '_', 2)::bigint < first_day
    LOOP
        EXECUTE format('DROP TABLE touchline_stats.%I', old.relname);
        dropped := dropped + 1;
    END LOOP;
    RETURN dropped;
END
$$;
