DROP TABLE event_dead;
DROP TABLE event_lane;
DROP TABLE event_outbox;
DROP TABLE event_head;
DROP TABLE event_client;
DROP TABLE event_key;
DROP TABLE event_holder;
DROP TABLE event_node;
