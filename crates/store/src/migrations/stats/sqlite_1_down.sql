DROP TABLE traffic;
DROP TABLE audience;
DROP TABLE event;
DROP TABLE connection;
