-- Endpoints of lifecycle events, as nodes describe them to each other: every node tells each of them the same, whatever its own configuration says.

ALTER TABLE touchline.event_node
    ADD COLUMN knows bigint NOT NULL DEFAULT 0,          -- the version of the descriptions by which the life tells
    ADD COLUMN endpoints text[] NOT NULL DEFAULT '{}';   -- the endpoints that it delivers to
ALTER TABLE touchline.event_head ADD COLUMN wishes bigint NOT NULL DEFAULT 0; -- the version of the descriptions

-- What an endpoint is told: a row for each description that some node has in its configuration. It is told what any of them says.
CREATE TABLE touchline.event_endpoint (
    name text COLLATE "C" NOT NULL,
    description text COLLATE "C" NOT NULL,  -- JSON: types, namespaces (null = all), lanes, delay_ms
    types text[] NOT NULL,                  -- those of the description, for the search
    namespaces text[],
    lanes integer NOT NULL,
    version bigint NOT NULL,                -- the version of the descriptions with which it came
    is_whole boolean NOT NULL,              -- whether every life has told by it since it was made, or the endpoint was told so by state.reset
    seen_ms bigint NOT NULL,                -- when a node named it, to ten seconds
    PRIMARY KEY (name, description)
);

-- Names the endpoints of a node. A description that is new waits for all transactions that put events into the outbox, so that whoever begins
-- later finds it. ("touchend" as a number.)
CREATE FUNCTION touchline.event_register(names text[], descriptions text[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    now_ms bigint := touchline.now_ms();
    next bigint;
BEGIN
    UPDATE touchline.event_endpoint SET seen_ms = now_ms WHERE (name, description) IN (
        SELECT known.name, known.description FROM touchline.event_endpoint known
        JOIN unnest(names, descriptions) AS item (name, description) ON item.name = known.name AND item.description = known.description
        WHERE known.seen_ms < now_ms - 10000 FOR UPDATE OF known SKIP LOCKED);
    IF NOT EXISTS (
        SELECT FROM unnest(names, descriptions) AS item (name, description) WHERE NOT EXISTS (
            SELECT FROM touchline.event_endpoint known WHERE known.name = item.name AND known.description = item.description)
    ) THEN
        RETURN;
    END IF;
    PERFORM pg_advisory_xact_lock(8390053700628213348);
    UPDATE touchline.event_head SET wishes = wishes + 1 RETURNING wishes INTO next;
    -- Where no life was, nothing was told that the endpoint has missed.
    INSERT INTO touchline.event_endpoint (name, description, types, namespaces, lanes, version, is_whole, seen_ms)
        SELECT item.name, item.description,
            ARRAY(SELECT jsonb_array_elements_text(item.description::jsonb -> 'types')),
            CASE WHEN jsonb_typeof(item.description::jsonb -> 'namespaces') = 'array'
                THEN ARRAY(SELECT jsonb_array_elements_text(item.description::jsonb -> 'namespaces')) END,
            (item.description::jsonb ->> 'lanes')::integer, next, NOT EXISTS (SELECT FROM touchline.event_node), now_ms
        FROM unnest(names, descriptions) AS item (name, description) ON CONFLICT DO NOTHING;
END
$$;

-- Puts events into the outbox, for each endpoint that wants them; their ids rise in their order. A kind that is null goes to every lane. Its
-- caller locks nothing behind it.
CREATE FUNCTION touchline.event_put(kinds text[], spaces text[], places bigint[], bodies text[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock_shared(8390053700628213348);
    INSERT INTO touchline.event_outbox (endpoint, lane, made_ms, body)
        SELECT told.name, item_lane.lane, touchline.now_ms(), item.body
        FROM unnest(kinds, spaces, places, bodies) WITH ORDINALITY AS item (kind, space, place, body, number)
        CROSS JOIN (SELECT known.name, max(known.lanes) AS lanes FROM touchline.event_endpoint known GROUP BY known.name) AS told
        CROSS JOIN LATERAL generate_series(
            CASE WHEN item.kind IS NULL THEN 0 ELSE (item.place % told.lanes)::integer END,
            CASE WHEN item.kind IS NULL THEN told.lanes - 1 ELSE (item.place % told.lanes)::integer END) AS item_lane (lane)
        WHERE item.kind IS NULL OR EXISTS (
            SELECT FROM touchline.event_endpoint wish WHERE wish.name = told.name AND item.kind = ANY (wish.types)
            AND (item.space IS NULL OR wish.namespaces IS NULL OR item.space = ANY (wish.namespaces)))
        ORDER BY item.number, told.name, item_lane.lane;
    IF FOUND THEN
        NOTIFY touchline_events;
    END IF;
END
$$;

-- Tells endpoints that they are told all from now on: every life that lasts tells by what was new to it. Returns how many descriptions are whole now.
CREATE FUNCTION touchline.event_settle(reset text) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    settled text[];
BEGIN
    WITH whole AS (
        UPDATE touchline.event_endpoint wish SET is_whole = true WHERE NOT wish.is_whole AND NOT EXISTS (
            SELECT FROM touchline.event_node life WHERE life.lease_until_ms > touchline.now_ms() AND life.knows < wish.version)
        RETURNING wish.name
    ) SELECT array_agg(DISTINCT whole.name) INTO settled FROM whole;
    IF settled IS NULL THEN
        RETURN 0;
    END IF;
    INSERT INTO touchline.event_outbox (endpoint, lane, made_ms, body)
        SELECT told.name, item_lane.lane, touchline.now_ms(), reset
        FROM (SELECT known.name, max(known.lanes) AS lanes FROM touchline.event_endpoint known WHERE known.name = ANY (settled)
            GROUP BY known.name) AS told
        CROSS JOIN LATERAL generate_series(0, told.lanes - 1) AS item_lane (lane)
        ORDER BY told.name, item_lane.lane;
    NOTIFY touchline_events;
    RETURN cardinality(settled);
END
$$;

-- Drops the oldest events of a lane that has too many, and puts `reset` before all that are left. Returns how many were dropped.
CREATE FUNCTION touchline.event_shorten(of_endpoint text, of_lane integer, most bigint, reset text) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    last bigint;
    dropped bigint;
BEGIN
    -- Two nodes that look at once drop it once.
    PERFORM FROM touchline.event_lane known WHERE known.endpoint = of_endpoint AND known.lane = of_lane FOR UPDATE;
    SELECT waiting.id INTO last FROM touchline.event_outbox waiting
        WHERE waiting.endpoint = of_endpoint AND waiting.lane = of_lane AND waiting.id > 0 ORDER BY waiting.id DESC OFFSET most LIMIT 1;
    IF NOT FOUND THEN
        RETURN 0;
    END IF;
    -- What an earlier drop has told there goes with them.
    WITH gone AS (
        DELETE FROM touchline.event_outbox waiting
        WHERE waiting.endpoint = of_endpoint AND waiting.lane = of_lane AND waiting.id <= last RETURNING waiting.id
    ) SELECT count(*) FILTER (WHERE gone.id > 0) INTO dropped FROM gone;
    INSERT INTO touchline.event_outbox (endpoint, lane, id, made_ms, body)
        VALUES (of_endpoint, of_lane, -nextval('touchline.event_outbox_id_seq'), touchline.now_ms(), reset);
    NOTIFY touchline_events;
    RETURN dropped;
END
$$;

-- How long the sweeper has nothing to do, milliseconds; null = as long as nothing happens.
CREATE FUNCTION touchline.event_idle() RETURNS bigint LANGUAGE sql AS $$
    SELECT least(
        (SELECT min(lease_until_ms) FROM touchline.event_node),
        (SELECT min(due_ms) FROM touchline.event_key WHERE due_ms IS NOT NULL AND generation % 2 = 1),
        (SELECT min(due_ms) FROM touchline.event_key WHERE due_ms IS NOT NULL AND generation % 2 = 0)
    ) - touchline.now_ms()
$$;

-- Forgets keys that were told as vacated or offline before all others, beyond `keep` of them; at most so many. Returns how many.
CREATE FUNCTION touchline.event_trim(keep bigint, most bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    surplus bigint;
    gone bigint;
    highest bigint;
BEGIN
    SELECT count(*) - keep INTO surplus FROM touchline.event_key WHERE due_ms IS NOT NULL AND generation % 2 = 0;
    IF surplus <= 0 THEN
        RETURN 0;
    END IF;
    -- Nobody makes a key meanwhile ("touchkey" as a number).
    PERFORM pg_advisory_xact_lock(8390053700628604281);
    WITH past AS (
        DELETE FROM touchline.event_key WHERE (kind, key) IN (
            SELECT kind, key FROM touchline.event_key WHERE due_ms IS NOT NULL AND generation % 2 = 0
            ORDER BY due_ms, kind, key LIMIT least(surplus, most) FOR UPDATE SKIP LOCKED)
        RETURNING generation
    ) SELECT count(*), coalesce(max(generation), 0) INTO gone, highest FROM past;
    UPDATE touchline.event_head SET forgotten = greatest(forgotten, highest) WHERE forgotten < highest;
    RETURN gone;
END
$$;

-- Shares the lanes of some endpoints among the lives that have these: takes lanes that nobody delivers, up to this life's share, and gives some of
-- its `idle` ones up above it. Returns the lanes of this life, with the number, the bytes and the time of the first `measured` events there.
DROP FUNCTION touchline.event_claim(text, bigint, text[], integer[], text[], integer[]);
CREATE FUNCTION touchline.event_share(
    me text, life bigint, endpoints text[], lanes integer[], idle_endpoints text[], idle_lanes integer[], measured bigint
) RETURNS TABLE (endpoint text, lane integer, events bigint, size bigint, oldest_ms bigint) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    now_ms bigint := touchline.now_ms();
    one text;
    part bigint;
    mine bigint;
BEGIN
    IF NOT EXISTS (SELECT FROM touchline.event_node own WHERE own.node = me AND own.incarnation = life AND own.lease_until_ms > now_ms) THEN
        RETURN;
    END IF;
    -- Also those that another node's description asks for: events are put into them, whether or not that node lives.
    INSERT INTO touchline.event_lane (endpoint, lane, node, incarnation, seen_ms)
        SELECT item.endpoint, item.lane, '', 0, now_ms FROM unnest(endpoints, lanes) AS item (endpoint, lane)
        UNION SELECT wish.name, number, '', 0, now_ms FROM touchline.event_endpoint wish, generate_series(0, wish.lanes - 1) AS number
        WHERE wish.name = ANY (endpoints) ORDER BY 1, 2 ON CONFLICT DO NOTHING;
    UPDATE touchline.event_lane known SET seen_ms = now_ms WHERE (known.endpoint, known.lane) IN (
        SELECT old.endpoint, old.lane FROM touchline.event_lane old
        WHERE old.endpoint = ANY (endpoints) AND old.seen_ms < now_ms - 3600000 FOR UPDATE SKIP LOCKED);
    FOR one IN SELECT DISTINCT item.endpoint FROM unnest(endpoints) AS item (endpoint) ORDER BY item.endpoint LOOP
        SELECT ceil(count(*)::numeric / greatest((
                SELECT count(*) FROM touchline.event_node live WHERE live.lease_until_ms > now_ms AND one = ANY (live.endpoints)), 1)),
            count(*) FILTER (WHERE known.node = me AND known.incarnation = life)
            INTO part, mine FROM touchline.event_lane known WHERE known.endpoint = one;
        UPDATE touchline.event_lane taken SET node = me, incarnation = life WHERE (taken.endpoint, taken.lane) IN (
            SELECT free.endpoint, free.lane FROM touchline.event_lane free WHERE free.endpoint = one AND NOT EXISTS (
                SELECT FROM touchline.event_node owner
                WHERE owner.node = free.node AND owner.incarnation = free.incarnation AND owner.lease_until_ms > now_ms)
            ORDER BY free.lane LIMIT greatest(part - mine, 0) FOR UPDATE SKIP LOCKED);
        UPDATE touchline.event_lane given SET node = '', incarnation = 0 WHERE (given.endpoint, given.lane) IN (
            SELECT own.endpoint, own.lane FROM touchline.event_lane own JOIN unnest(idle_endpoints, idle_lanes) AS item (endpoint, lane)
                ON own.endpoint = item.endpoint AND own.lane = item.lane
            WHERE own.endpoint = one AND own.node = me AND own.incarnation = life LIMIT greatest(mine - part, 0));
    END LOOP;
    RETURN QUERY SELECT known.endpoint, known.lane, first.events, first.size, first.oldest_ms
        FROM touchline.event_lane known CROSS JOIN LATERAL (
            SELECT count(*) AS events, coalesce(sum(octet_length(few.body)), 0)::bigint AS size, min(few.made_ms) AS oldest_ms FROM (
                SELECT waiting.body, waiting.made_ms FROM touchline.event_outbox waiting
                WHERE waiting.endpoint = known.endpoint AND waiting.lane = known.lane ORDER BY waiting.id LIMIT measured) few) first
        WHERE known.node = me AND known.incarnation = life;
END
$$;
