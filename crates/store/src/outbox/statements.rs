//! The SQL statements of an outbox. Table names are quoted in the text; everything else is a parameter.

use super::types::{COUNTED_MAX, OutboxOptions, TIMEOUT};

/// The maximum payload of a row, bytes of its text.
pub(super) const PAYLOAD_MAX: u64 = 10 * 1024 * 1024;
/// The maximum size of the payloads in one transaction, bytes. A row that begins beyond it is in the next transaction.
pub(super) const BATCH_SIZE_MAX: u64 = 64 * 1024 * 1024;
/// The methods whose repetition does not remove later data. A row with any other method is the last one of its
/// transaction. It is then certainly deleted before any later row in its channels begins.
const SIDE_BY_SIDE: &str = "'publish', 'broadcast'";
/// How long the database waits within a transaction for this node to send a statement or to read, milliseconds. After
/// that, it ends the connection and thereby releases the lock of the partition.
const IDLE_MS: u64 = 5_000;

/// The SQL statements for one table.
pub(super) struct Statements {
    /// Begins a transaction.
    pub(super) begin: String,
    /// Takes the lock of a partition by the text of its key. Returns whether it is held, its number, and the process of
    /// the database.
    pub(super) lock: &'static str,
    /// Reads the oldest rows of a partition, and the database process that reads them. It stops after the first row
    /// that must be the last of its transaction and was not kept by the previous one.
    pub(super) select: String,
    /// Deletes finished rows.
    pub(super) delete: String,
    /// Moves rows into the table of dead rows, each with a reason.
    pub(super) bury: String,
    /// Creates the table of dead rows.
    pub(super) make_dead: String,
    /// Reads a table's full name, whether it has `created_at`, and whether the user may read it and delete from it.
    pub(super) describe: &'static str,
    /// Counts waiting rows, and the rows in partitions that no node reads.
    pub(super) count: String,
    /// Returns how long the oldest row has waited, milliseconds.
    pub(super) age: String,
}

/// The interval between two keep-alive statements of this node within a transaction, milliseconds.
pub(super) const ALIVE_EVERY_MS: u64 = 1_000;
// One keep-alive may be late.
const _: () = assert!(ALIVE_EVERY_MS * 3 < IDLE_MS);

impl Statements {
    pub(super) fn of(options: &OutboxOptions) -> Self {
        let (table, dead) = (options.table.quoted(), options.dead_table.quoted());
        Statements {
            begin: format!(
                "BEGIN; SET LOCAL idle_in_transaction_session_timeout = {IDLE_MS}; SET LOCAL lock_timeout = {IDLE_MS}; \
                 SET LOCAL tcp_user_timeout = {IDLE_MS}; SET LOCAL statement_timeout = {timeout}; \
                 SET LOCAL synchronous_commit = on",
                timeout = TIMEOUT.as_millis()
            ),
            lock: if options.tries_lock {
                "SELECT pg_try_advisory_xact_lock(hashtext($1)), hashtext($1)::bigint, pg_backend_pid()"
            } else {
                "SELECT pg_advisory_xact_lock(hashtext($1)) IS NOT NULL, hashtext($1)::bigint, pg_backend_pid()"
            },
            select: format!(
                "SELECT id, method, CASE WHEN size <= {PAYLOAD_MAX} THEN payload END, incarnation, \
                     pg_backend_pid() FROM ( \
                     SELECT id, method, payload, incarnation, octet_length(payload) AS size, \
                         bool_or(method NOT IN ({SIDE_BY_SIDE}) AND id <> ALL($3)) OVER (ORDER BY id \
                             ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS is_behind, \
                         sum(least(octet_length(payload), {PAYLOAD_MAX})) OVER (ORDER BY id) AS total FROM ( \
                         SELECT id::bigint AS id, method::text AS method, payload::text AS payload, \
                             concat_ws('.', tableoid, pg_relation_filenode(tableoid), xmin) AS incarnation \
                         FROM {table} \
                         WHERE \"partition\" = $1 ORDER BY id LIMIT $2 \
                     ) oldest \
                 ) measured WHERE total - least(size, {PAYLOAD_MAX}) < {BATCH_SIZE_MAX} \
                     AND is_behind IS NOT TRUE ORDER BY id"
            ),
            delete: format!("DELETE FROM {table} WHERE id = ANY($1)"),
            bury: format!(
                "WITH bad AS (SELECT * FROM unnest($1::bigint[], $2::text[]) AS given (id, error)), \
                 moved AS (DELETE FROM {table} AS aside USING bad WHERE aside.id = bad.id \
                     RETURNING aside.id, aside.method, aside.payload::text AS payload, aside.\"partition\", bad.error) \
                 INSERT INTO {dead} (id, method, payload, \"partition\", error) \
                 SELECT id, method, payload, \"partition\", error FROM moved"
            ),
            make_dead: format!(
                "CREATE TABLE IF NOT EXISTS {dead} ( \
                     number bigserial PRIMARY KEY, id bigint NOT NULL, method text, payload text, \
                     \"partition\" integer NOT NULL, error text NOT NULL, \
                     failed_at timestamptz NOT NULL DEFAULT clock_timestamp())"
            ),
            describe: "SELECT quote_ident(space.nspname) || '.' || quote_ident(class.relname), \
                 EXISTS (SELECT FROM pg_attribute WHERE attrelid = class.oid AND attname = 'created_at' \
                     AND NOT attisdropped), \
                 has_table_privilege(class.oid, 'SELECT') AND has_table_privilege(class.oid, 'DELETE') \
                 FROM pg_class class JOIN pg_namespace space ON space.oid = class.relnamespace \
                 WHERE class.oid = to_regclass($1)",
            count: format!(
                "SELECT (SELECT count(*) FROM (SELECT FROM {table} LIMIT {COUNTED_MAX}) waiting), \
                 (SELECT count(*) FROM (SELECT FROM {table} WHERE \"partition\" < 0 OR \"partition\" >= $1 \
                     LIMIT {COUNTED_MAX}) unread)"
            ),
            age: format!(
                "SELECT greatest(0, extract(epoch FROM clock_timestamp() - created_at) * 1000)::bigint FROM {table} \
                 WHERE \"partition\" >= 0 AND \"partition\" < $1 ORDER BY id LIMIT 1"
            ),
        }
    }
}

/// The text for a partition's lock, which is the one that Centrifugo uses.
pub(super) fn lock_text(consumer: &str, partition: u32) -> String {
    format!("centrifugo_partition_lock_{consumer}{partition}")
}
