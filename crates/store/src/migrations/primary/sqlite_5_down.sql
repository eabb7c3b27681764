DROP TABLE user_seen;
