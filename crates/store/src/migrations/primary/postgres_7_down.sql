DROP TABLE touchline.reaction;
