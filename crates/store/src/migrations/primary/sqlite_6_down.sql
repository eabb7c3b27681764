DROP TABLE event_endpoint;
