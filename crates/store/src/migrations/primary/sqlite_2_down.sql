DROP TABLE letter;
DROP TABLE term;
DROP TABLE channel_term;
DROP TABLE channel_info;
