DROP FUNCTION touchline.post(text, text, text, bigint, bigint, text);
DROP TABLE touchline.letter;
DROP FUNCTION touchline.describe(text, text, text, text, text, text[], bigint[]);
DROP FUNCTION touchline.forget(text);
DROP TABLE touchline.term;
DROP TABLE touchline.channel_term;
DROP TABLE touchline.channel_info;
