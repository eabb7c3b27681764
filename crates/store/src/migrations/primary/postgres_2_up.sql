-- What is known of channels, and the words by which they are found.
CREATE TABLE touchline.channel_info (
    id bigserial PRIMARY KEY,
    channel text NOT NULL UNIQUE,
    title text NOT NULL,
    description text NOT NULL,
    type text NOT NULL,
    tags text NOT NULL              -- a JSON array of texts
);

-- How much each word says of a channel: its count in each field, by the field's weight.
CREATE TABLE touchline.channel_term (
    term text COLLATE "C" NOT NULL,
    info bigint NOT NULL,
    weight bigint NOT NULL,
    PRIMARY KEY (term, info)
);
CREATE INDEX channel_term_info ON touchline.channel_term (info);

-- In how many channels a word is; the empty word is in all.
CREATE TABLE touchline.term (
    term text COLLATE "C" PRIMARY KEY,
    channels bigint NOT NULL
);

-- Lets go of what is known of a channel. One node at a time: the counts of words are shared by all channels.
CREATE FUNCTION touchline.forget(of text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    known bigint;
BEGIN
    PERFORM pg_advisory_xact_lock(8390891508474245737); -- "touchdi" and a byte, as a number
    DELETE FROM touchline.channel_info WHERE channel = of RETURNING id INTO known;
    UPDATE touchline.term counted SET channels = channels - 1
        FROM touchline.channel_term gone WHERE gone.info = known AND gone.term = counted.term;
    DELETE FROM touchline.term counted
        USING touchline.channel_term gone WHERE gone.info = known AND gone.term = counted.term AND counted.channels = 0;
    DELETE FROM touchline.channel_term WHERE info = known;
END
$$;

-- Replaces what is known of a channel.
CREATE FUNCTION touchline.describe(of text, title text, description text, type text, tags text, terms text[], weights bigint[])
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    made bigint;
BEGIN
    PERFORM touchline.forget(of);
    INSERT INTO touchline.channel_info (channel, title, description, type, tags)
        VALUES (of, describe.title, describe.description, describe.type, describe.tags) RETURNING id INTO made;
    INSERT INTO touchline.channel_term SELECT said.term, made, said.weight FROM unnest(terms, weights) AS said (term, weight);
    INSERT INTO touchline.term AS counted SELECT said.term, 1 FROM unnest(terms) AS said (term)
        ON CONFLICT (term) DO UPDATE SET channels = counted.channels + 1;
END
$$;

-- Messages to names, until their owners have acknowledged them.
CREATE TABLE touchline.inbox_message (
    id bigserial PRIMARY KEY,
    scope text NOT NULL,
    name text NOT NULL,
    message text NOT NULL,          -- JSON
    expires_ms bigint NOT NULL,
    format smallint NOT NULL        -- of the message: 1
);
CREATE INDEX inbox_message_name ON touchline.inbox_message (scope, name, id);
CREATE INDEX inbox_message_expires ON touchline.inbox_message (expires_ms);

-- Keeps a message if there is room for it. Messages to one name are committed in the order of their ids: a reader never finds one late.
CREATE FUNCTION touchline.store_message(to_scope text, to_name text, message text, expires_ms bigint, most bigint, notifier text) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    made bigint;
BEGIN
    PERFORM pg_advisory_xact_lock(1953461097, hashtext(to_scope || ' ' || to_name)); -- "toui" as a number
    IF (SELECT count(*) FROM touchline.inbox_message kept WHERE kept.scope = to_scope AND kept.name = to_name) >= most THEN
        RETURN NULL;
    END IF;
    INSERT INTO touchline.inbox_message (scope, name, message, expires_ms, format)
        VALUES (to_scope, to_name, store_message.message, store_message.expires_ms, 1) RETURNING id INTO made;
    IF notifier <> '' THEN
        PERFORM pg_notify('touchline', notifier || ' @' || octet_length(to_scope) || ' ' || to_scope || to_name);
    END IF;
    RETURN made;
END
$$;
