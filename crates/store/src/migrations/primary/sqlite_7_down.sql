DROP TABLE reaction;
