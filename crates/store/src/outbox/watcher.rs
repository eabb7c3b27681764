//! Watches a whole table: wakes partitions on notifications, and counts waiting rows.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_postgres::types::Type;

use super::partition::{Description, describe};
use super::statements::Statements;
use super::types::{OutboxLag, OutboxOptions, OutboxReport, RowHandler, TIMEOUT, stopped};
use crate::panics::caught_in;
use crate::postgres::{PostgresAddress, PostgresClient, PostgresError, with_timeout};

/// The interval between two counts.
const COUNT_INTERVAL: Duration = Duration::from_secs(5);
/// The interval between two checks of the connection that receives notifications.
const CHECK_INTERVAL: Duration = Duration::from_secs(2);

/// The watcher of a table.
pub(super) struct OutboxWatcher {
    pub(super) options: Arc<OutboxOptions>,
    pub(super) address: PostgresAddress,
    pub(super) statements: Arc<Statements>,
    /// One notifier for each partition.
    pub(super) bells: Arc<[Notify]>,
    pub(super) handler: Arc<dyn RowHandler>,
}

impl OutboxWatcher {
    /// Watches until `stop` becomes true.
    pub(super) async fn run(self, mut stop: watch::Receiver<bool>) {
        let mut failures = 0;
        loop {
            let began = Instant::now();
            let error = tokio::select! {
                watched = caught_in(self.watch()) => match watched {
                    Ok(Err(error)) => error,
                    Ok(Ok(never)) => match never {},
                    Err(panicked) => panicked.into(),
                },
                () = stopped(&mut stop) => return,
            };
            failures = if began.elapsed() > COUNT_INTERVAL { 1 } else { failures + 1 };
            self.handler.report(OutboxReport::Failing(None, error.to_string()));
            tokio::select! {
                () = tokio::time::sleep(self.handler.delay(failures)) => {}
                () = stopped(&mut stop) => return,
            }
        }
    }

    async fn watch(&self) -> Result<std::convert::Infallible, PostgresError> {
        let (bells, handler) = (Arc::clone(&self.bells), Arc::clone(&self.handler));
        let client = PostgresClient::bare(&self.address, move |payload| ring(&bells, &payload, &*handler)).await?;
        let channel = &self.options.notification_channel;
        if !channel.is_empty() {
            let listen = format!("LISTEN \"{}\"", channel.to_ascii_lowercase());
            with_timeout(TIMEOUT, async { Ok(client.client.batch_execute(&listen).await?) }).await?;
            // Notifications may have been lost, so all partitions are checked.
            self.bells.iter().for_each(Notify::notify_one);
        }
        let (mut count_at, mut is_told) = (Instant::now(), false);
        loop {
            if Instant::now() >= count_at {
                self.count(&client).await?;
                count_at = Instant::now() + COUNT_INTERVAL;
            } else {
                with_timeout(TIMEOUT, async { Ok(client.client.batch_execute("").await?) }).await?;
            }
            if !is_told && !channel.is_empty() && !self.is_listening(&client).await? {
                is_told = true;
                self.handler.report(OutboxReport::NoNotifications);
            }
            self.handler.report(OutboxReport::Working(None));
            tokio::time::sleep(CHECK_INTERVAL).await;
        }
    }

    /// Whether the database sends notifications to this connection. A transaction pooler may have changed the database
    /// process since the LISTEN.
    async fn is_listening(&self, client: &PostgresClient) -> Result<bool, PostgresError> {
        let asked = async { Ok(client.client.query_typed("SELECT FROM pg_listening_channels() LIMIT 1", &[]).await?) };
        Ok(!with_timeout(TIMEOUT, asked).await?.is_empty())
    }

    async fn count(&self, client: &PostgresClient) -> Result<(), PostgresError> {
        let described = describe(client, &self.options.table, &self.statements).await?;
        let Some(Description { has_time, .. }) = described else {
            return Err(PostgresError::NoTable { table: self.options.table.to_string() });
        };
        let partitions = self.options.partitions as i32;
        let counted = async {
            let counts = client.client.query_typed(&self.statements.count, &[(&partitions, Type::INT4)]).await?;
            let mut age = Vec::new();
            if has_time {
                age = client.client.query_typed(&self.statements.age, &[(&partitions, Type::INT4)]).await?;
            }
            Ok((counts, age))
        };
        let (counts, age) = with_timeout(TIMEOUT, counted).await?;
        let number = |index| counts.first().map_or(0, |row| row.get::<_, i64>(index)) as u64;
        let oldest_ms = age.first().map_or(0, |row| row.get::<_, i64>(0)) as u64;
        let (unread, all) = (number(1), number(0));
        let lag = OutboxLag { rows: all.saturating_sub(unread), oldest: Duration::from_millis(oldest_ms), unread };
        self.handler.report(OutboxReport::Lag(lag));
        Ok(())
    }
}

/// Wakes the partition that a notification names.
fn ring(bells: &[Notify], payload: &str, handler: &dyn RowHandler) {
    match payload.parse::<usize>().ok().and_then(|partition| bells.get(partition)) {
        Some(bell) => bell.notify_one(),
        None => handler.report(OutboxReport::StrangeNotification),
    }
}
