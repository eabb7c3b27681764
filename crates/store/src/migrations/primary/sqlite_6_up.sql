-- Endpoints of lifecycle events, as in PostgreSQL; only one node names them here.
CREATE TABLE event_endpoint (
    name TEXT NOT NULL,
    description TEXT NOT NULL,      -- JSON: types, namespaces (null = all), lanes, delay_ms
    is_whole INTEGER NOT NULL,      -- 0 = the endpoint has to be told by state.reset that it is told all from now on
    seen_ms INTEGER NOT NULL,
    PRIMARY KEY (name, description)
) STRICT, WITHOUT ROWID;
