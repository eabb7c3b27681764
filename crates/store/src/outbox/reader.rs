//! Reads a table with one task for each partition, and one task that watches the whole table.

use std::sync::Arc;

use tokio::sync::{Notify, watch};

use super::partition::{PartitionLoop, describe};
use super::statements::Statements;
use super::types::{OutboxOptions, RowHandler, TIMEOUT};
use super::watcher::OutboxWatcher;
use crate::errors::OpenError;
use crate::postgres::{PostgresAddress, PostgresClient, PostgresError};

/// A reader of one table.
pub struct OutboxReader {
    options: OutboxOptions,
    address: PostgresAddress,
    notification_address: PostgresAddress,
}

impl OutboxReader {
    /// Checks the addresses without connecting.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn new(options: OutboxOptions) -> Result<Self, OpenError> {
        let of = |url: &str| {
            let tls = options.tls.clone();
            Ok::<_, OpenError>(PostgresAddress::with_tls(url, tls, TIMEOUT)?)
        };
        let address = of(&options.dsn)?;
        let notification_address =
            if options.notification_dsn.is_empty() { address.clone() } else { of(&options.notification_dsn)? };
        Ok(OutboxReader { options, address, notification_address })
    }

    /// Connects once, and checks that the table exists and may be used. Changes nothing.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub async fn try_connection(&self) -> Result<(), OpenError> {
        let client = PostgresClient::bare(&self.address, |_| ()).await?;
        let table = || self.options.table.to_string();
        let statements = Statements::of(&self.options);
        let Some(described) = describe(&client, &self.options.table, &statements).await? else {
            return Err(PostgresError::NoTable { table: table() }.into());
        };
        if !described.may_take {
            return Err(PostgresError::NoRight { table: table() }.into());
        }
        if !self.options.notification_dsn.is_empty() {
            PostgresClient::bare(&self.notification_address, |_| ()).await?;
        }
        Ok(())
    }

    /// Serves all partitions until `stop` becomes true. Work in progress is finished first.
    pub async fn run(self, handler: Arc<dyn RowHandler>, stop: watch::Receiver<bool>) {
        let OutboxReader { options, address, notification_address } = self;
        let bells: Arc<[Notify]> = (0..options.partitions).map(|_| Notify::new()).collect();
        let statements = Arc::new(Statements::of(&options));
        let options = Arc::new(options);
        let mut tasks = tokio::task::JoinSet::new();
        let watcher = OutboxWatcher {
            options: Arc::clone(&options),
            address: notification_address,
            statements: Arc::clone(&statements),
            bells: Arc::clone(&bells),
            handler: Arc::clone(&handler),
        };
        tasks.spawn(watcher.run(stop.clone()));
        for partition in 0..options.partitions {
            let served = PartitionLoop::new(
                partition,
                Arc::clone(&options),
                address.clone(),
                Arc::clone(&statements),
                Arc::clone(&handler),
            );
            tasks.spawn(served.run(Arc::clone(&bells), stop.clone()));
        }
        while tasks.join_next().await.is_some() {}
    }
}
