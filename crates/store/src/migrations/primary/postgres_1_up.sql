-- Channels that are durable: where each stands, and how long it keeps what.
CREATE TABLE touchline.channel (
    id bigserial PRIMARY KEY,
    name text NOT NULL UNIQUE,
    epoch bigint NOT NULL,
    top bigint NOT NULL,            -- the last offset; 0 = nothing was ever published
    oldest bigint NOT NULL,         -- the first offset that is kept; below it, rows only wait to be deleted
    version bigint NOT NULL,
    version_epoch text NOT NULL,
    ttl_ms bigint NOT NULL,
    meta_ttl_ms bigint NOT NULL,
    due_ms bigint NOT NULL,         -- when there is something to trim: Unix milliseconds
    run bigint NOT NULL,            -- the run that gave the last offset; 0 = none did
    cut bigint NOT NULL DEFAULT 0,  -- the first offset that the channel's size keeps; other nodes may not have read yet what is below it
    mark bigint NOT NULL DEFAULT 0, -- what was the last offset …
    mark_ms bigint NOT NULL DEFAULT 0 -- … then, so how old the offsets up to it are at least
);
CREATE INDEX channel_due ON touchline.channel (due_ms);

CREATE TABLE touchline.publication (
    channel bigint NOT NULL,
    "offset" bigint NOT NULL,
    time_ms bigint NOT NULL,
    format smallint NOT NULL,       -- of the rest of the row: 1
    data text NOT NULL,             -- the publication as JSON, without its offset
    PRIMARY KEY (channel, "offset")
);

-- Within a run the database only went forward. A new one begins when it may have been set back to an earlier state.
CREATE TABLE touchline.run (
    number bigint PRIMARY KEY,
    id bigint NOT NULL,             -- 40 random bits, a part of positions
    identity text NOT NULL,         -- which database it was, on which timeline
    begun timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- The first offset that each run gave in a channel. A position of a run is one of today's history if that run did not end before it.
CREATE TABLE touchline.channel_run (
    channel bigint NOT NULL,
    run bigint NOT NULL,
    first bigint NOT NULL,
    PRIMARY KEY (channel, run)
);

-- Unix milliseconds by the one clock that all nodes share.
CREATE FUNCTION touchline.now_ms() RETURNS bigint LANGUAGE sql AS $$
    SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint
$$;

-- Nodes that write here and hear each other.
CREATE TABLE touchline.lease (
    node text PRIMARY KEY,
    beat bigint NOT NULL,           -- counts renewals: a node that remembers more knows that the database was set back
    expires timestamptz NOT NULL
);

-- What changes when another copy of the database takes its place: the system, the timeline, the database, the table. What may not be asked for,
-- or is not known there, is left out.
CREATE FUNCTION touchline.identity() RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    found text := (SELECT oid FROM pg_database WHERE datname = current_database()) || '/' || 'touchline.run'::regclass::oid::text;
BEGIN
    BEGIN
        found := found || '/' || (SELECT system_identifier FROM pg_control_system());
    EXCEPTION WHEN insufficient_privilege OR undefined_function OR feature_not_supported THEN
    END;
    BEGIN
        found := found || '/' || left(pg_walfile_name(pg_current_wal_lsn()), 8);
    EXCEPTION WHEN insufficient_privilege OR undefined_function OR feature_not_supported THEN
    END;
    RETURN found;
END
$$;

-- A node begins to write, or does so again on another connection; `beats` is how often it has renewed its lease. A new run begins if the database
-- is another one, if it has forgotten renewals, if the current run is known to be bad, or if the node is new and no other is there.
-- No publication is under way meanwhile: they hold this lock for reading.
CREATE FUNCTION touchline.enter(me text, beats bigint, new_id bigint, bad_id bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    newest touchline.run;
    was bigint;
    is_alone boolean;
BEGIN
    PERFORM pg_advisory_xact_lock(8390891508474246766); -- "touchrun" without its last letter, and a byte, as a number
    SELECT * INTO newest FROM touchline.run ORDER BY number DESC LIMIT 1;
    SELECT beat INTO was FROM touchline.lease WHERE node = me;
    is_alone := NOT EXISTS (SELECT FROM touchline.lease WHERE node <> me AND expires > clock_timestamp());
    IF newest.number IS NULL OR newest.identity <> touchline.identity() OR newest.id = bad_id OR coalesce(was, 0) < beats
        OR (beats = 0 AND is_alone) THEN
        INSERT INTO touchline.run (number, id, identity) VALUES (coalesce(newest.number, 0) + 1, new_id, touchline.identity());
        DELETE FROM touchline.run WHERE number <= newest.number + 1 - 1000;
    END IF;
    DELETE FROM touchline.lease WHERE expires < clock_timestamp() - interval '1 day';
    INSERT INTO touchline.lease AS known VALUES (me, beats + 1, clock_timestamp() + interval '20 s')
        ON CONFLICT (node) DO UPDATE SET beat = greatest(known.beat, beats) + 1, expires = excluded.expires
        RETURNING beat INTO was;
    RETURN was;
END
$$;

-- Renews a lease that was renewed so often: whether it had not run out; null = the database has forgotten renewals, or its runs.
CREATE FUNCTION touchline.renew(me text, beats bigint) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    was_live boolean;
BEGIN
    IF NOT EXISTS (SELECT FROM touchline.run) THEN
        RETURN NULL;
    END IF;
    SELECT expires > clock_timestamp() INTO was_live FROM touchline.lease WHERE node = me AND beat >= beats FOR UPDATE;
    UPDATE touchline.lease SET beat = beats + 1, expires = clock_timestamp() + interval '20 s' WHERE node = me AND beat >= beats;
    RETURN was_live;
END
$$;

-- Results of keyed publishes, as long as a repeated one must give the first one's.
CREATE TABLE touchline.idempotency (
    channel bigint NOT NULL,
    key text NOT NULL,
    "offset" bigint NOT NULL,
    expires_ms bigint NOT NULL,
    PRIMARY KEY (channel, key)
);
CREATE INDEX idempotency_expires ON touchline.idempotency (expires_ms);

-- The channel's row, locked; made with this epoch if it is not there.
CREATE FUNCTION touchline.channel_of(of text, new_epoch bigint, made_due_ms bigint) RETURNS touchline.channel LANGUAGE plpgsql AS $$
DECLARE
    known touchline.channel;
BEGIN
    LOOP
        SELECT * INTO known FROM touchline.channel WHERE name = of FOR UPDATE;
        EXIT WHEN FOUND;
        INSERT INTO touchline.channel (name, epoch, top, oldest, version, version_epoch, ttl_ms, meta_ttl_ms, due_ms, run)
            VALUES (of, new_epoch, 0, 1, 0, '', 0, 0, made_due_ms, 0) ON CONFLICT DO NOTHING;
    END LOOP;
    RETURN known;
END
$$;

-- Gives publications their places, a batch at a time. Channels are taken in the order of their names, so that two nodes never wait for each other.
CREATE FUNCTION touchline.append(
    names text[], times bigint[], datas text[], keys text[], versions bigint[], version_epochs text[], sizes bigint[], ttls bigint[],
    metas bigint[], epochs bigint[], notifier text
) RETURNS TABLE (place bigint, "offset" bigint, epoch bigint, run bigint, is_new boolean) LANGUAGE plpgsql AS $$
DECLARE
    item record;
    current touchline.channel;
    was bigint;
    run_number bigint;
    now_ms bigint := touchline.now_ms();
BEGIN
    -- Its caller keeps others from beginning a new one.
    SELECT newest.number, newest.id INTO run_number, run FROM touchline.run newest ORDER BY newest.number DESC LIMIT 1;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the database has forgotten its runs';
    END IF;
    IF NOT EXISTS (SELECT FROM touchline.lease other WHERE other.node <> notifier AND other.expires > clock_timestamp()) THEN
        -- Nobody else is there to hear it.
        notifier := '';
    END IF;
    FOR item IN
        SELECT * FROM unnest(names, times, datas, keys, versions, version_epochs, sizes, ttls, metas, epochs) WITH ORDINALITY
            AS given (name, time_ms, data, key, version, version_epoch, size, ttl_ms, meta_ttl_ms, epoch, place)
        ORDER BY given.name COLLATE "C", given.place
    LOOP
        IF current.name IS DISTINCT FROM item.name THEN
            PERFORM touchline.settle(current, run, notifier);
            current := touchline.channel_of(item.name, item.epoch, 9223372036854775807);
        END IF;
        place := item.place;
        epoch := current.epoch;
        is_new := false;
        IF item.key <> '' THEN
            SELECT known."offset" INTO was FROM touchline.idempotency known
                WHERE known.channel = current.id AND known.key = item.key AND known.expires_ms > now_ms;
            IF FOUND THEN
                "offset" := was;
                RETURN NEXT;
                CONTINUE;
            END IF;
        END IF;
        IF item.version > 0 THEN
            IF current.version_epoch = item.version_epoch AND item.version <= current.version THEN
                "offset" := current.top;
                RETURN NEXT;
                CONTINUE;
            END IF;
            current.version := item.version;
            current.version_epoch := item.version_epoch;
        END IF;
        current.top := current.top + 1;
        IF current.run <> run_number THEN
            INSERT INTO touchline.channel_run VALUES (current.id, run_number, current.top);
            -- The run that gave the oldest stays: where it began, the one before ended.
            DELETE FROM touchline.channel_run gone WHERE gone.channel = current.id AND gone.run <
                (SELECT max(kept.run) FROM touchline.channel_run kept WHERE kept.channel = current.id AND kept.first < current.oldest);
            current.run := run_number;
        END IF;
        INSERT INTO touchline.publication (channel, "offset", time_ms, format, data)
            VALUES (current.id, current.top, item.time_ms, 1, item.data);
        IF item.key <> '' THEN
            INSERT INTO touchline.idempotency VALUES (current.id, item.key, current.top, now_ms + 300000)
                ON CONFLICT ON CONSTRAINT idempotency_pkey DO UPDATE SET "offset" = excluded."offset", expires_ms = excluded.expires_ms;
        END IF;
        IF current.oldest = current.top OR current.ttl_ms <> item.ttl_ms OR current.meta_ttl_ms <> item.meta_ttl_ms THEN
            current.ttl_ms := item.ttl_ms;
            current.meta_ttl_ms := item.meta_ttl_ms;
            -- Where something waits to be deleted, the trimmer looks at the rest as well.
            IF current.due_ms <> 0 THEN
                current.due_ms := item.time_ms + item.ttl_ms;
            END IF;
        END IF;
        current.cut := greatest(current.cut, current.top + 1 - item.size);
        "offset" := current.top;
        is_new := true;
        RETURN NEXT;
    END LOOP;
    PERFORM touchline.settle(current, run, notifier);
END
$$;

-- Lets go of what the channel's size does not keep and was stored two seconds ago or earlier: until then, other nodes that have been told of it
-- read it. Readers keep to the size.
CREATE FUNCTION touchline.let_go(now touchline.channel) RETURNS touchline.channel LANGUAGE plpgsql AS $$
DECLARE
    now_ms bigint := touchline.now_ms();
BEGIN
    IF now.oldest < now.cut AND now.mark_ms <= now_ms - 2000 THEN
        now.oldest := greatest(now.oldest, least(now.cut, now.mark + 1));
        now.mark := now.top;
        now.mark_ms := now_ms;
    END IF;
    IF now.oldest < now.cut THEN
        -- The next batch of the channel does the rest; or, if none comes, the trimmer.
        now.due_ms := least(now.due_ms, now_ms + 60000);
    END IF;
    RETURN now;
END
$$;

-- Writes a channel's row after its batch, deletes some of what it keeps too much of, and tells other nodes.
CREATE FUNCTION touchline.settle(now touchline.channel, run_id bigint, notifier text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    deleted bigint;
    before bigint;
BEGIN
    IF now.name IS NULL THEN
        RETURN;
    END IF;
    SELECT oldest INTO before FROM touchline.channel WHERE id = now.id;
    IF notifier = '' THEN
        now.oldest := greatest(now.oldest, now.cut);
    ELSE
        now := touchline.let_go(now);
    END IF;
    IF now.oldest > before THEN
        DELETE FROM touchline.publication old WHERE old.channel = now.id AND old."offset" IN (
            SELECT few."offset" FROM touchline.publication few WHERE few.channel = now.id AND few."offset" < now.oldest ORDER BY few."offset" LIMIT 512);
        GET DIAGNOSTICS deleted = ROW_COUNT;
        IF deleted = 512 THEN
            now.due_ms := 0;
        END IF;
    END IF;
    UPDATE touchline.channel SET top = now.top, oldest = now.oldest, version = now.version, version_epoch = now.version_epoch,
        ttl_ms = now.ttl_ms, meta_ttl_ms = now.meta_ttl_ms, due_ms = now.due_ms, run = now.run, cut = now.cut, mark = now.mark,
        mark_ms = now.mark_ms WHERE id = now.id;
    IF notifier <> '' THEN
        PERFORM pg_notify('touchline', notifier || ' ' || now.top || '/' || now.epoch || '/' || run_id || ' ' || now.name);
    END IF;
END
$$;

-- Lets go of what is too old, of some channels and some of it. Whether there may be more.
CREATE FUNCTION touchline.trim() RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    current touchline.channel;
    first touchline.publication;
    until bigint;
    deleted bigint;
    keyed_ms bigint;
    looked bigint := 0;
    has_more boolean := false;
    now_ms bigint := touchline.now_ms();
BEGIN
    FOR current IN SELECT * FROM touchline.channel WHERE due_ms <= now_ms ORDER BY due_ms LIMIT 32 FOR UPDATE SKIP LOCKED LOOP
        looked := looked + 1;
        current := touchline.let_go(current);
        -- Times come from the nodes' clocks, so they may not rise with the offsets: what is behind one that stays does so, too.
        until := (SELECT few."offset" FROM
            (SELECT head."offset", head.time_ms FROM touchline.publication head WHERE head.channel = current.id ORDER BY head."offset" LIMIT 512) few
            WHERE few."offset" >= current.oldest AND few.time_ms > now_ms - current.ttl_ms ORDER BY few."offset" LIMIT 1);
        DELETE FROM touchline.publication old WHERE old.channel = current.id AND old."offset" IN (
            SELECT few."offset" FROM touchline.publication few WHERE few.channel = current.id
                AND few."offset" < coalesce(until, 9223372036854775807) ORDER BY few."offset" LIMIT 512);
        GET DIAGNOSTICS deleted = ROW_COUNT;
        has_more := has_more OR deleted = 512;
        SELECT * INTO first FROM touchline.publication few WHERE few.channel = current.id ORDER BY few."offset" LIMIT 1;
        IF FOUND THEN
            current.oldest := greatest(current.oldest, first."offset");
            current.due_ms := CASE WHEN first."offset" < current.oldest THEN now_ms
                WHEN current.oldest < current.cut THEN least(first.time_ms + current.ttl_ms, now_ms + 60000)
                ELSE first.time_ms + current.ttl_ms END;
        ELSIF current.oldest > current.top AND deleted = 0 AND current.due_ms <> 0 THEN
            -- An empty channel is kept for its position, and for its keys: the results that they give are positions. Then it goes as well.
            keyed_ms := (SELECT max(known.expires_ms) FROM touchline.idempotency known WHERE known.channel = current.id AND known.expires_ms > now_ms);
            IF keyed_ms IS NULL THEN
                DELETE FROM touchline.idempotency WHERE channel = current.id;
                DELETE FROM touchline.channel_run WHERE channel = current.id;
                DELETE FROM touchline.channel WHERE id = current.id;
                CONTINUE;
            END IF;
            current.due_ms := keyed_ms;
        ELSE
            current.oldest := current.top + 1;
            current.due_ms := now_ms + current.meta_ttl_ms;
        END IF;
        UPDATE touchline.channel SET oldest = current.oldest, due_ms = current.due_ms, mark = current.mark, mark_ms = current.mark_ms
            WHERE id = current.id;
    END LOOP;
    DELETE FROM touchline.idempotency WHERE (channel, key) IN (SELECT channel, key FROM touchline.idempotency WHERE expires_ms <= now_ms LIMIT 512);
    GET DIAGNOSTICS deleted = ROW_COUNT;
    RETURN has_more OR looked = 32 OR deleted = 512;
END
$$;

-- What applications publish inside their own transactions, until a node has given it its place.
CREATE TABLE touchline.outbox (
    id bigserial PRIMARY KEY,
    channel text NOT NULL,
    data text NOT NULL,             -- the publication as JSON
    key text NOT NULL,
    refused text                    -- why it can't be published; it stays for a human to see
);
CREATE INDEX outbox_waiting ON touchline.outbox (id) WHERE refused IS NULL;

-- Publishes when, and only if, the transaction that calls it is committed.
CREATE FUNCTION public.touchline_publish(channel text, data jsonb, idempotency_key text DEFAULT '', tags jsonb DEFAULT NULL) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog AS $$
    INSERT INTO touchline.outbox (channel, data, key) VALUES (
        touchline_publish.channel,
        '{"data":' || touchline_publish.data::text || CASE WHEN tags IS NULL THEN '' ELSE ',"tags":' || tags::text END || '}',
        coalesce(idempotency_key, ''));
    SELECT pg_notify('touchline_outbox', '');
$$;
REVOKE ALL ON FUNCTION public.touchline_publish(text, jsonb, text, jsonb) FROM PUBLIC;
