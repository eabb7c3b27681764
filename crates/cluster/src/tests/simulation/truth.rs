//! What the streams have, which subscribers and callers must agree with.

use touchline_protocol::stream::ChannelName;

use super::nats::SimulatedNats;
use super::store::SimulatedStore;
use super::streams::KeptStream;
use super::world::{DURABLE, KEPT};

/// The places where publications are stored.
pub(super) type Places<'d> = (&'d SimulatedNats, &'d SimulatedStore);

fn with_stream<T>(nats: &SimulatedNats, read: impl FnOnce(&KeptStream) -> T) -> Option<T> {
    let state = nats.state();
    let mut streams = state.streams.streams.iter();
    let is_kept = |name: &str| !name.starts_with("KV_") && name.ends_with(&crate::subject::token("kept"));
    streams.find(|(name, _)| is_kept(name)).map(|(_, stream)| read(stream))
}

fn subject_ends(channel: &str) -> String {
    format!(".{}", crate::subject::token(channel))
}

/// The offsets of a channel after one offset and up to another.
pub(super) fn between((nats, store): Places<'_>, channel: &str, after: u64, to: u64) -> Vec<u64> {
    if channel.starts_with("durable:") {
        let top = store.log(channel).len() as u64;
        return (after.min(top) + 1..=to.min(top)).collect();
    }
    let end = subject_ends(channel);
    let offsets = with_stream(nats, |stream| {
        let of = stream.all.iter().filter(|kept| kept.subject.ends_with(&end));
        of.map(|kept| kept.sequence).filter(|at| *at > after && *at <= to).collect()
    });
    offsets.unwrap_or_default()
}

/// The offsets of a channel after one offset and up to another that are not among `found`, although nothing has removed
/// them.
pub(super) fn lacking(places: Places<'_>, channel: &str, (after, to): (u64, u64), found: &[u64]) -> Vec<u64> {
    let is_removal = |offset: &u64| data_at(places, channel, *offset).is_none();
    let removed = between(places, channel, 0, to).into_iter().rfind(is_removal).unwrap_or_default();
    between(places, channel, after.max(removed), to).into_iter().filter(|at| !found.contains(at)).collect()
}

/// The data at an offset; `None` = a removal.
fn data_at((nats, store): Places<'_>, channel: &str, offset: u64) -> Option<u64> {
    if channel.starts_with("durable:") {
        return store.log(channel).get(offset as usize - 1).and_then(|payload| number_of(payload, "data"));
    }
    let end = subject_ends(channel);
    with_stream(nats, |stream| {
        let found = stream.all.iter().find(|kept| kept.sequence == offset && kept.subject.ends_with(&end));
        found.and_then(|kept| number_of(&kept.payload, "data"))
    })
    .flatten()
}

/// Everything that is stored: the channel, the data, the offset.
pub(super) fn stored(places: Places<'_>) -> Vec<(ChannelName, u64, u64)> {
    let mut all = Vec::new();
    for channel in KEPT.into_iter().chain(DURABLE) {
        for offset in between(places, channel, 0, u64::MAX) {
            all.extend(data_at(places, channel, offset).map(|data| (channel.into(), data, offset)));
        }
    }
    all
}

/// The number that a publication carries under a name.
pub(super) fn number_of(json: &[u8], name: &str) -> Option<u64> {
    let text = String::from_utf8_lossy(json);
    let (_, rest) = text
        .split_once(&format!(r#""{name}":"#))
        .filter(|(_, rest)| rest.starts_with(|c: char| c.is_ascii_digit()))
        .or_else(|| text.rsplit_once(&format!(r#""{name}":"#)))?;
    rest[..rest.find(|c: char| !c.is_ascii_digit())?].parse().ok()
}
