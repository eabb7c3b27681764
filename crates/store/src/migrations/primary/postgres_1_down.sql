DROP FUNCTION public.touchline_publish(text, jsonb, text, jsonb);
DROP TABLE touchline.outbox;
DROP FUNCTION touchline.trim(bigint);
DROP FUNCTION touchline.append(text[], bigint[], text[], text[], bigint[], text[], bigint[], bigint[], bigint[], bigint[], bigint, text);
DROP FUNCTION touchline.settle(touchline.channel, text);
DROP FUNCTION touchline.channel_of(text, bigint, bigint);
DROP TABLE touchline.idempotency;
DROP TABLE touchline.publication;
DROP TABLE touchline.channel;
