//! Loads what is kept of channels: many at a time, so many and no more, with one look at a stream for all that came back together.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::Semaphore;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::Incoming;
use crate::connection::Hand;
use crate::history::{Kept, Streams};

/// Channels that are read at a time: more would only wait in the queues of the NATS server, which drops what does not fit.
const READING_MAX: usize = 256;

/// What is asked for: all that is kept of a channel behind an offset.
#[derive(Debug)]
pub(crate) struct Load {
    pub(crate) channel: Arc<str>,
    pub(crate) namespace: Arc<str>,
    pub(crate) behind: u64,
}

/// The way to its two tasks: one has channels read, the other looks at the streams and hands the histories in.
pub(crate) struct Loader(UnboundedSender<Load>);

impl Loader {
    /// Starts it; it ends when this is dropped and all that was asked is answered.
    pub(crate) fn start(streams: Streams, hand: Hand) -> Self {
        let (loads, asked) = unbounded_channel();
        let (read, reads) = unbounded_channel();
        tokio::spawn(have_read(streams.clone(), asked, read));
        tokio::spawn(hand_in(streams, reads, hand));
        Loader(loads)
    }

    /// Asks; the answer comes as [`Incoming::Loaded`].
    pub(crate) fn load(&self, load: Load) {
        let _ = self.0.send(load);
    }
}

type Read = (Load, Option<Kept>);

async fn have_read(streams: Streams, mut asked: UnboundedReceiver<Load>, read: UnboundedSender<Read>) {
    let room = Arc::new(Semaphore::new(READING_MAX));
    while let Some(load) = asked.recv().await {
        let Ok(permit) = Arc::clone(&room).acquire_owned().await else { return };
        let (streams, read) = (streams.clone(), read.clone());
        tokio::spawn(async move {
            let kept = streams.read(&load).await;
            drop(permit);
            let _ = read.send((load, kept));
        });
    }
}

/// A stream is looked at behind the reads: what it has dropped until then is not claimed to be there.
async fn hand_in(streams: Streams, mut reads: UnboundedReceiver<Read>, hand: Hand) {
    let mut together = Vec::new();
    while reads.recv_many(&mut together, READING_MAX).await > 0 {
        let mut firsts = HashMap::new();
        for (Load { channel, namespace, behind }, kept) in together.drain(..) {
            let first = match firsts.get(&namespace) {
                Some(first) => *first,
                None => *firsts.entry(Arc::clone(&namespace)).or_insert(streams.first_sequence(&namespace).await),
            };
            let history = first.zip(kept).and_then(|(first, kept)| streams.history(&namespace, behind, kept, first));
            hand(Incoming::Loaded { channel, behind, history });
        }
    }
}
