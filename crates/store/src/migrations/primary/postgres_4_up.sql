-- Lifecycle events that are told for certain (the ledger). The only clock is touchline.now_ms().

-- Lives of nodes. A life writes only while its lease lasts; whoever finds the lease over takes what the life has left.
CREATE TABLE touchline.event_node (
    node text COLLATE "C" NOT NULL,
    incarnation bigint NOT NULL,
    lease_until_ms bigint NOT NULL, -- Unix milliseconds; 0 = given up, or being taken over
    batch bigint NOT NULL,          -- the last batch that the life has written: a batch that is sent again is not written again
    PRIMARY KEY (node, incarnation)
);
-- Leases that are over.
CREATE INDEX event_node_lease ON touchline.event_node (lease_until_ms);

-- Which lives hold a channel or a user: one row for each life, however many connections it has.
CREATE TABLE touchline.event_holder (
    kind smallint NOT NULL,         -- 1 = a channel, 2 = a user
    key text COLLATE "C" NOT NULL,
    node text COLLATE "C" NOT NULL,
    incarnation bigint NOT NULL,
    PRIMARY KEY (kind, key, node, incarnation)
);
-- What a life holds, in the order in which keys are locked.
CREATE INDEX event_holder_life ON touchline.event_holder (node, incarnation, kind, key);

-- What was told of a channel or a user. Who changes its holders or its generation locks it.
CREATE TABLE touchline.event_key (
    kind smallint NOT NULL,
    key text COLLATE "C" NOT NULL,
    generation bigint NOT NULL,     -- odd = told as occupied or online, even = as vacated or offline
    empty_since_ms bigint,          -- since when nobody holds it; null = somebody does
    cause smallint,                 -- why nobody does: 1 = the last one left, 2 = a node went down, 3 = the node started again
    due_ms bigint,                  -- odd: when to tell that nobody holds it; even: when to forget it
    PRIMARY KEY (kind, key)
);
-- Keys to tell, and keys to forget.
CREATE INDEX event_key_empty ON touchline.event_key (due_ms) WHERE due_ms IS NOT NULL AND generation % 2 = 1;
CREATE INDEX event_key_over ON touchline.event_key (due_ms) WHERE due_ms IS NOT NULL AND generation % 2 = 0;

-- Connections that were told as connected and not as disconnected.
CREATE TABLE touchline.event_client (
    node text COLLATE "C" NOT NULL,
    incarnation bigint NOT NULL,
    client text COLLATE "C" NOT NULL,
    about text NOT NULL,            -- JSON: what the event of its end needs
    PRIMARY KEY (node, incarnation, client)
);

-- One row: what keys without a row begin after, and the last incarnation that was given.
CREATE TABLE touchline.event_head (
    is_one boolean PRIMARY KEY DEFAULT true CHECK (is_one),
    forgotten bigint NOT NULL,      -- the highest generation of a key that was forgotten; even
    incarnation bigint NOT NULL
);
INSERT INTO touchline.event_head (forgotten, incarnation) VALUES (0, 0);

-- Events that wait for their endpoints: read by endpoint and lane, in the order of their ids, and deleted when they are delivered.
CREATE TABLE touchline.event_outbox (
    endpoint text COLLATE "C" NOT NULL,
    lane integer NOT NULL,
    id bigserial NOT NULL,
    made_ms bigint NOT NULL,
    body text NOT NULL,             -- the event as JSON
    PRIMARY KEY (endpoint, lane, id)
);

-- Which life delivers a lane; its lease is that of the life. A few rows for each endpoint.
CREATE TABLE touchline.event_lane (
    endpoint text COLLATE "C" NOT NULL,
    lane integer NOT NULL,
    node text COLLATE "C" NOT NULL, -- empty = none
    incarnation bigint NOT NULL,
    seen_ms bigint NOT NULL,        -- when a node knew the endpoint, to an hour
    PRIMARY KEY (endpoint, lane)
);

-- Events that could not be delivered.
CREATE TABLE touchline.event_dead (
    id bigserial PRIMARY KEY,
    endpoint text COLLATE "C" NOT NULL,
    lane integer NOT NULL,
    made_ms bigint NOT NULL,
    died_ms bigint NOT NULL,
    tries integer NOT NULL,
    last_error text NOT NULL,
    body text NOT NULL
);
CREATE INDEX event_dead_endpoint ON touchline.event_dead (endpoint, id);

-- Marks a key as empty from now on if nobody holds it any more; it is locked. It is told `wait_ms` later.
CREATE FUNCTION touchline.event_empty(of_kind smallint, of_key text, why smallint, wait_ms bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    now_ms bigint := touchline.now_ms();
BEGIN
    UPDATE touchline.event_key known SET empty_since_ms = now_ms, cause = why, due_ms = now_ms + wait_ms
        WHERE known.kind = of_kind AND known.key = of_key AND known.generation % 2 = 1 AND NOT EXISTS (
            SELECT FROM touchline.event_holder holder WHERE holder.kind = of_kind AND holder.key = of_key);
END
$$;

-- What a life holds anew (`gained`) and still holds (`held`), each key once. Returns the keys that are to be told as occupied or online. Its
-- caller holds the lock against forgetting, and the row of the life. Keys are locked one by one in one order, so that no two nodes wait for each
-- other; a join with them would be planned by what the tables were when they were empty.
CREATE FUNCTION touchline.event_hold(me text, life bigint, kinds smallint[], names text[], gained boolean[], held boolean[], delay_ms bigint)
RETURNS TABLE (kind smallint, key text, generation bigint) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    item record;
    was touchline.event_key;
    first bigint := (SELECT head.forgotten FROM touchline.event_head head);
BEGIN
    FOR item IN
        SELECT given.kind, given.key, given.gained, given.held FROM unnest(kinds, names, gained, held) AS given (kind, key, gained, held)
        ORDER BY given.kind, given.key COLLATE "C"
    LOOP
        LOOP
            SELECT * INTO was FROM touchline.event_key known WHERE known.kind = item.kind AND known.key = item.key FOR UPDATE;
            EXIT WHEN FOUND OR NOT item.gained;
            INSERT INTO touchline.event_key (kind, key, generation) VALUES (item.kind, item.key, first) ON CONFLICT DO NOTHING;
        END LOOP;
        IF item.gained THEN
            IF item.held THEN
                INSERT INTO touchline.event_holder (kind, key, node, incarnation) VALUES (item.kind, item.key, me, life)
                    ON CONFLICT DO NOTHING;
            END IF;
            IF was.generation % 2 = 0 OR was.due_ms IS NOT NULL THEN
                UPDATE touchline.event_key known
                    SET generation = was.generation + 1 - was.generation % 2, empty_since_ms = NULL, cause = NULL, due_ms = NULL
                    WHERE known.kind = item.kind AND known.key = item.key;
            END IF;
            IF was.generation % 2 = 0 THEN
                kind := item.kind;
                key := item.key;
                generation := was.generation + 1;
                RETURN NEXT;
            END IF;
        END IF;
        IF NOT item.held THEN
            DELETE FROM touchline.event_holder gone
                WHERE gone.kind = item.kind AND gone.key = item.key AND gone.node = me AND gone.incarnation = life;
            PERFORM touchline.event_empty(item.kind, item.key, 1::smallint, delay_ms);
        END IF;
    END LOOP;
END
$$;

-- Takes keys away from a life that is over, at most so many. Returns how many. Its caller has locked the row of the life.
CREATE FUNCTION touchline.event_drop(dead text, life bigint, most bigint, why smallint, wait_ms bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    item record;
    dropped bigint := 0;
BEGIN
    FOR item IN
        SELECT kind, key FROM touchline.event_holder WHERE node = dead AND incarnation = life ORDER BY kind, key LIMIT most
    LOOP
        PERFORM FROM touchline.event_key known WHERE known.kind = item.kind AND known.key = item.key FOR UPDATE;
        DELETE FROM touchline.event_holder gone
            WHERE gone.kind = item.kind AND gone.key = item.key AND gone.node = dead AND gone.incarnation = life;
        PERFORM touchline.event_empty(item.kind, item.key, why, wait_ms);
        dropped := dropped + 1;
    END LOOP;
    RETURN dropped;
END
$$;

-- Returns keys that have been empty for long enough, to be told as vacated or offline; at most so many. Keys that somebody else has locked wait
-- for the next time; a second node finds them even.
CREATE FUNCTION touchline.event_sweep(most bigint, keep_ms bigint)
RETURNS TABLE (kind smallint, key text, generation bigint, empty_since_ms bigint, cause smallint) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    now_ms bigint := touchline.now_ms();
    item touchline.event_key;
BEGIN
    FOR item IN
        SELECT * FROM touchline.event_key due WHERE due.due_ms <= now_ms AND due.generation % 2 = 1
        ORDER BY due.due_ms LIMIT most FOR UPDATE SKIP LOCKED
    LOOP
        -- Whoever came since has committed before the lock, and so is seen here.
        IF EXISTS (SELECT FROM touchline.event_holder holder WHERE holder.kind = item.kind AND holder.key = item.key) THEN
            UPDATE touchline.event_key known SET empty_since_ms = NULL, cause = NULL, due_ms = NULL
                WHERE known.kind = item.kind AND known.key = item.key;
            CONTINUE;
        END IF;
        UPDATE touchline.event_key known SET generation = item.generation + 1, due_ms = now_ms + keep_ms
            WHERE known.kind = item.kind AND known.key = item.key;
        kind := item.kind;
        key := item.key;
        generation := item.generation + 1;
        empty_since_ms := item.empty_since_ms;
        cause := item.cause;
        RETURN NEXT;
    END LOOP;
END
$$;

-- Forgets keys that were told as vacated or offline long ago, at most so many. Returns how many. A key that comes again begins above all that were
-- forgotten, so that no generation is given twice.
CREATE FUNCTION touchline.event_forget(most bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    now_ms bigint := touchline.now_ms();
    gone bigint;
    highest bigint;
BEGIN
    IF NOT EXISTS (SELECT FROM touchline.event_key WHERE due_ms <= now_ms AND generation % 2 = 0) THEN
        RETURN 0;
    END IF;
    -- Nobody makes a key meanwhile ("touchkey" as a number).
    PERFORM pg_advisory_xact_lock(8390053700628604281);
    WITH past AS (
        DELETE FROM touchline.event_key WHERE (kind, key) IN (
            SELECT kind, key FROM touchline.event_key WHERE due_ms <= now_ms AND generation % 2 = 0 ORDER BY due_ms LIMIT most)
        RETURNING generation
    ) SELECT count(*), max(generation) INTO gone, highest FROM past;
    UPDATE touchline.event_head SET forgotten = greatest(forgotten, highest);
    RETURN gone;
END
$$;

-- Shares the lanes of some endpoints among the lives that are there: takes lanes that nobody delivers, up to this life's share, and gives some of
-- its `idle` ones up above it. Returns the lanes of this life.
CREATE FUNCTION touchline.event_claim(
    me text, life bigint, endpoints text[], lanes integer[], idle_endpoints text[], idle_lanes integer[]
) RETURNS TABLE (endpoint text, lane integer) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    now_ms bigint := touchline.now_ms();
    share bigint;
    mine bigint;
BEGIN
    IF NOT EXISTS (SELECT FROM touchline.event_node own WHERE own.node = me AND own.incarnation = life AND own.lease_until_ms > now_ms) THEN
        RETURN;
    END IF;
    INSERT INTO touchline.event_lane (endpoint, lane, node, incarnation, seen_ms)
        SELECT item.endpoint, item.lane, '', 0, now_ms FROM unnest(endpoints, lanes) AS item (endpoint, lane) ON CONFLICT DO NOTHING;
    UPDATE touchline.event_lane known SET seen_ms = now_ms WHERE known.endpoint = ANY (endpoints) AND known.seen_ms < now_ms - 3600000;
    SELECT ceil(count(*)::numeric / greatest((SELECT count(*) FROM touchline.event_node live WHERE live.lease_until_ms > now_ms), 1)),
        count(*) FILTER (WHERE known.node = me AND known.incarnation = life)
        INTO share, mine FROM touchline.event_lane known WHERE known.endpoint = ANY (endpoints);
    UPDATE touchline.event_lane taken SET node = me, incarnation = life WHERE (taken.endpoint, taken.lane) IN (
        SELECT free.endpoint, free.lane FROM touchline.event_lane free WHERE free.endpoint = ANY (endpoints) AND NOT EXISTS (
            SELECT FROM touchline.event_node owner
            WHERE owner.node = free.node AND owner.incarnation = free.incarnation AND owner.lease_until_ms > now_ms)
        ORDER BY free.lane, free.endpoint LIMIT greatest(share - mine, 0) FOR UPDATE SKIP LOCKED);
    UPDATE touchline.event_lane given SET node = '', incarnation = 0 WHERE (given.endpoint, given.lane) IN (
        SELECT own.endpoint, own.lane FROM touchline.event_lane own JOIN unnest(idle_endpoints, idle_lanes) AS item (endpoint, lane)
            ON own.endpoint = item.endpoint AND own.lane = item.lane
        WHERE own.node = me AND own.incarnation = life LIMIT greatest(mine - share, 0));
    RETURN QUERY SELECT known.endpoint, known.lane FROM touchline.event_lane known WHERE known.node = me AND known.incarnation = life;
END
$$;
