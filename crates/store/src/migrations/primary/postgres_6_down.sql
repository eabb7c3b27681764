DROP FUNCTION touchline.event_share(text, bigint, text[], integer[], text[], integer[], bigint);
DROP FUNCTION touchline.event_trim(bigint, bigint);
DROP FUNCTION touchline.event_idle();
DROP FUNCTION touchline.event_shorten(text, integer, bigint, text);
DROP FUNCTION touchline.event_settle(text);
DROP FUNCTION touchline.event_put(text[], text[], bigint[], text[]);
DROP FUNCTION touchline.event_register(text[], text[]);
DROP TABLE touchline.event_endpoint;
ALTER TABLE touchline.event_head DROP COLUMN wishes;
ALTER TABLE touchline.event_node DROP COLUMN knows, DROP COLUMN endpoints;

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
