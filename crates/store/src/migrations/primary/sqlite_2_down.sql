DROP TABLE inbox_message;
DROP TABLE term;
DROP TABLE channel_term;
DROP TABLE channel_info;
