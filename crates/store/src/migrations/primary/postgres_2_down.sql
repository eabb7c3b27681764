DROP FUNCTION touchline.store_message(text, text, text, bigint, bigint, text);
DROP TABLE touchline.inbox_message;
DROP FUNCTION touchline.describe(text, text, text, text, text, text[], bigint[]);
DROP FUNCTION touchline.forget(text);
DROP TABLE touchline.term;
DROP TABLE touchline.channel_term;
DROP TABLE touchline.channel_info;
