DROP TABLE touchline.user_seen;
