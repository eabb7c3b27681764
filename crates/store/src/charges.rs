//! The cost of each kind of write. A charge is the most by which a write may enlarge the database, as far as that is
//! known without a look. It is the write's bytes twice, because pages are split in halves, plus the overhead of rows
//! and indexes.

use crate::batch::WriteRequest;
use crate::growth::{GrowthCharge, GrowthClass};
use crate::publication::Append;

/// The size of a row and its index entries without their values, bytes.
const ROW: u64 = 512;
/// Values of at least this size have separate pages, of which the last one is not full.
const LARGE_VALUE: usize = 1_000;
/// The largest page size of the two databases, bytes.
const PAGE: u64 = 8_192;
/// The cost of one word of a description, bytes.
const WORD: u64 = 256;

/// The cost of a row with a value of `value` bytes, and `repeated` bytes in columns that indexes repeat.
fn row(value: usize, repeated: usize) -> u64 {
    let page = if value >= LARGE_VALUE { PAGE } else { 0 };
    ROW + page + 2 * value as u64 + 4 * repeated as u64
}

/// The cost of a publication: its row, the row of a new channel, and its idempotency key.
pub(crate) fn of_append(append: &Append) -> u64 {
    let key = if append.key.is_empty() { 0 } else { row(0, append.key.len()) };
    row(append.payload.len(), 0) + row(append.version_epoch.len(), append.channel.len()) + key
}

/// The cost of a write.
pub(crate) fn of_write(write: &WriteRequest) -> GrowthCharge {
    let (class, bytes) = match write {
        WriteRequest::Append(append) => (GrowthClass::Ordinary, of_append(append)),
        WriteRequest::AppendRows(rows) => {
            (GrowthClass::Ordinary, rows.rows.iter().map(|(_, append)| of_append(append)).sum())
        }
        WriteRequest::Describe { description, weights, .. } => {
            let texts = description.title.len() + description.description.len();
            let tags: usize = description.tags.iter().map(String::len).sum();
            let words = weights.len() as u64 * WORD;
            (GrowthClass::Ordinary, row(texts + tags, description.channel.len()) + words)
        }
        WriteRequest::QueueMessage(message, _) => {
            (GrowthClass::Ordinary, row(message.message.len(), message.scope.len() + message.name.len()))
        }
        // A client that subscribes must not be refused while any room is left. The row is removed automatically later.
        WriteRequest::Make(load) => (GrowthClass::Small, row(0, load.channel.len())),
        // The next row of the same kind replaces each of these rows.
        WriteRequest::NoteSeen { rows, .. } => {
            (GrowthClass::Small, rows.iter().map(|seen| row(0, seen.user.len())).sum())
        }
        WriteRequest::KeepReactions { rows, .. } => {
            let of_row = |kept: &crate::reactions::ReactionRow| {
                row(kept.state.len(), kept.channel.len() + kept.contributor.len())
            };
            (GrowthClass::Small, rows.iter().map(of_row).sum())
        }
        // Bans protect the server, so they are never refused; `security.bans_max_entries` limits them.
        WriteRequest::ChangeFact { .. } => (GrowthClass::Always, ROW),
        WriteRequest::Remove { .. }
        | WriteRequest::Forget { .. }
        | WriteRequest::ForgetSeen { .. }
        | WriteRequest::DiscardMessages { .. }
        | WriteRequest::DropMessages(..)
        | WriteRequest::BeginRun { .. }
        | WriteRequest::Close => (GrowthClass::Always, 0),
    };
    GrowthCharge { class, bytes }
}
