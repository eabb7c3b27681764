DROP TABLE idempotency;
DROP TABLE channel_run;
DROP TABLE run;
DROP TABLE publication;
DROP TABLE channel;
