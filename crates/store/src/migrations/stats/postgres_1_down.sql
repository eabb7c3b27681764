DROP FUNCTION touchline_stats.drop_before(bigint);
DROP FUNCTION touchline_stats.prepare(bigint[]);
DROP TABLE touchline_stats.traffic;
DROP TABLE touchline_stats.audience;
DROP TABLE touchline_stats.event;
DROP TABLE touchline_stats.connection;
