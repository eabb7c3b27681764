DROP TABLE idempotency;
DROP TABLE publication;
DROP TABLE channel;
