//! Reads what is asked for.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use bytes::Bytes;
use tokio::sync::Mutex;
use tokio::sync::mpsc::{UnboundedReceiver, WeakSender};
use tokio_postgres::{Client, Row};

use super::connection::{Address, Failure, Link};
use super::{directory, letters};
use crate::batch::{Answer, Load, Read, Write, now_ms};
use crate::{Figures, Hand, History, Refusal};

/// The channel and what it keeps in one statement, so all of one moment; one row without a publication where it keeps nothing.
const SELECT: &str = "SELECT c.epoch, c.top, c.floor, p.\"offset\", p.time_ms, p.data \
     FROM (SELECT id, epoch, top, greatest(oldest - 1, top - $3, $2, 0) AS floor FROM touchline.channel WHERE name = $1) c \
     LEFT JOIN touchline.publication p ON p.channel = c.id AND p.\"offset\" > c.floor ORDER BY p.\"offset\"";

/// One of the tasks that read.
pub(super) struct Reader {
    address: Address,
    /// None at first and after a failure.
    link: Option<Link>,
    hand: Hand,
    writes: WeakSender<Write>,
    figures: Arc<Figures>,
}

impl Reader {
    pub(super) fn new(address: Address, hand: Hand, writes: WeakSender<Write>, figures: Arc<Figures>) -> Self {
        Reader { address, link: None, hand, writes, figures }
    }

    /// Serves until nobody can ask any more.
    pub(super) async fn serve(mut self, asked: Arc<Mutex<UnboundedReceiver<Read>>>) {
        loop {
            let Some(read) = asked.lock().await.recv().await else { return };
            let answer = tokio::time::timeout(self.address.patience, self.read(&read)).await;
            let read = read.finish(&self.figures);
            match answer.map_err(Failure::from).and_then(|answer| answer) {
                Ok(answer) => {
                    if let (Some(load), Some(writes)) = (read.tell(answer, &self.hand), self.writes.upgrade()) {
                        let _ = writes.send(Write::Make(load)).await;
                    }
                }
                Err(error) if error.is_of_item() => {
                    tracing::debug!(%error, "the primary database refuses a question");
                    self.link = None;
                    read.refuse(&self.hand, Refusal::Invalid);
                }
                Err(error) => {
                    tracing::warn!(%error, "the primary database could not be read");
                    self.link = None;
                    read.refuse(&self.hand, Refusal::Failed);
                }
            }
        }
    }

    async fn read(&mut self, read: &Read) -> Result<Answer, Failure> {
        let link = match self.link.take() {
            Some(link) if !link.client.is_closed() => link,
            _ => Link::to(&self.address).await?,
        };
        let client = &self.link.insert(link).client;
        Ok(match read {
            Read::History(load) => {
                self.figures.loads.fetch_add(1, Relaxed);
                Answer::History(history(client, load).await?)
            }
            Read::Find(find, _) => Answer::Find(directory::find(client, find).await?),
            Read::Letters { scope, name, behind, limit } => {
                Answer::Letters(letters::of(client, scope, name, *behind, *limit, now_ms()).await?)
            }
        })
    }
}

async fn history(client: &Client, load: &Load) -> Result<Option<History>, Failure> {
    let size = i64::try_from(load.size).unwrap_or(i64::MAX);
    let rows = client.query(SELECT, &[&&*load.channel, &(load.behind as i64), &size]).await?;
    let Some(first) = rows.first() else { return Ok(None) };
    let number = |row: &Row, column: usize| row.get::<_, i64>(column) as u64;
    let (epoch, top, floor) = (number(first, 0), number(first, 1), number(first, 2));
    let is_kept = |row: &&Row| row.get::<_, Option<i64>>(3).is_some();
    let kept = rows.iter().filter(is_kept).map(|row| (number(row, 3), number(row, 4), Bytes::from(row.get::<_, String>(5))));
    Ok(Some(History { epoch, top, floor, kept: kept.collect() }))
}
