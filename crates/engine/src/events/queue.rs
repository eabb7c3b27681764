//! Events that wait for one endpoint, without a database: a bounded queue of several lanes. When it is full, the oldest
//! event is dropped, and every lane then sends `state.reset` before anything else.

use std::collections::VecDeque;

use super::draft::WrittenEvent;

/// The greatest size of one batch, bytes.
pub const BATCH_SIZE_MAX: usize = 256 * 1_024;

/// The limits of a queue.
#[derive(Debug, Clone, Copy)]
pub struct EventQueueLimits {
    /// The number of lanes, at least one.
    pub lanes: usize,
    /// How many events may wait, at least one.
    pub entries_max: usize,
    /// How many bytes of events may wait.
    pub size_max: usize,
    /// How long an event waits for others of its batch, milliseconds.
    pub batch_wait_ms: u64,
}

/// Events that were lost before they could be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventLoss {
    /// How many events were lost.
    pub events: u64,
    /// The time since which receivers' knowledge may be wrong, Unix milliseconds. Earlier events are not in doubt.
    pub since_ms: u64,
}

impl EventLoss {
    /// The loss of these events; `None` = there are no events.
    pub fn of<'a>(events: impl IntoIterator<Item = &'a WrittenEvent>) -> Option<Self> {
        let mut loss = EventLoss { events: 0, since_ms: u64::MAX };
        for event in events {
            loss = EventLoss { events: loss.events + 1, since_ms: loss.since_ms.min(event.since_ms) };
        }
        (loss.events > 0).then_some(loss)
    }
}

/// An event that waits in a lane.
#[derive(Debug)]
struct QueuedEvent {
    /// The event's number in the order of arrival.
    arrival: u64,
    /// When the event arrived, Unix milliseconds.
    since_ms: u64,
    event: WrittenEvent,
}

#[derive(Debug, Default)]
struct EventLane {
    waiting: VecDeque<QueuedEvent>,
    size: usize,
    /// The event that this lane sends before all others; `None` = the lane has reported all its losses.
    reset: Option<WrittenEvent>,
}

/// Events that wait for one endpoint.
#[derive(Debug)]
pub struct EventQueue {
    limits: EventQueueLimits,
    lanes: Vec<EventLane>,
    entries: usize,
    size: usize,
    last_arrival: u64,
}

impl EventQueue {
    /// An empty queue with these limits.
    pub fn new(limits: EventQueueLimits) -> Self {
        let lanes = std::iter::repeat_with(EventLane::default).take(limits.lanes.max(1)).collect();
        EventQueue { limits, lanes, entries: 0, size: 0, last_arrival: 0 }
    }

    /// Changes the limits for events that are added from now on. The number of lanes stays the same.
    pub fn set_limits(&mut self, limits: EventQueueLimits) {
        self.limits = EventQueueLimits { lanes: self.limits.lanes, ..limits };
    }

    /// Adds an event. Returns its lane, and the events that were dropped to make room, the oldest first. After a drop,
    /// the caller must call [`EventQueue::note_loss`].
    pub fn push(&mut self, event: WrittenEvent, now_ms: u64) -> (usize, Option<EventLoss>) {
        let (lane, size) = (event.lane(self.lanes.len()), event.size());
        self.last_arrival += 1;
        self.entries += 1;
        self.size += size;
        self.lanes[lane].size += size;
        self.lanes[lane].waiting.push_back(QueuedEvent { arrival: self.last_arrival, since_ms: now_ms, event });
        let mut dropped = Vec::new();
        while self.entries > self.limits.entries_max.max(1) || self.size > self.limits.size_max && self.entries > 1 {
            dropped.extend(self.drop_oldest());
        }
        (lane, EventLoss::of(&dropped))
    }

    fn drop_oldest(&mut self) -> Option<WrittenEvent> {
        let first = |lane: &EventLane| lane.waiting.front().map_or(u64::MAX, |queued| queued.arrival);
        let oldest = self.lanes.iter_mut().min_by_key(|lane| first(lane))?;
        let gone = oldest.waiting.pop_front()?;
        oldest.size -= gone.event.size();
        self.entries -= 1;
        self.size -= gone.event.size();
        Some(gone.event)
    }

    /// Notes that something was lost before it could be sent. Every lane sends this event first, unless it is about to
    /// send one that goes back at least as far.
    pub fn note_loss(&mut self, reset: &WrittenEvent) {
        for lane in &mut self.lanes {
            if lane.reset.as_ref().is_none_or(|told| reset.since_ms < told.since_ms) {
                lane.reset = Some(reset.clone());
            }
        }
    }

    /// When a lane has a batch, Unix milliseconds; `None` = the lane is empty. `batch_max`: the events of a full batch.
    pub fn ready_at(&self, lane: usize, batch_max: usize) -> Option<u64> {
        let lane = self.lanes.get(lane)?;
        if lane.reset.is_some() || lane.waiting.len() >= batch_max || lane.size >= BATCH_SIZE_MAX {
            return Some(0);
        }
        lane.waiting.front().map(|queued| queued.since_ms.saturating_add(self.limits.batch_wait_ms))
    }

    /// Removes a batch from a lane: at most `batch_max` events, and at most [`BATCH_SIZE_MAX`] bytes together. Empty =
    /// the lane is empty.
    pub fn take(&mut self, lane: usize, batch_max: usize) -> Vec<WrittenEvent> {
        let Some(lane) = self.lanes.get_mut(lane) else { return Vec::new() };
        let mut batch = Vec::with_capacity(lane.waiting.len().min(batch_max));
        // The brackets of the JSON list; each event adds a comma.
        let mut bytes = 2;
        if let Some(reset) = lane.reset.take() {
            bytes += reset.body.len() + 1;
            batch.push(reset);
        }
        while let Some(next) = lane.waiting.front() {
            bytes += next.event.body.len() + 1;
            if batch.len() >= batch_max.max(1) || bytes > BATCH_SIZE_MAX && !batch.is_empty() {
                break;
            }
            let Some(QueuedEvent { event, .. }) = lane.waiting.pop_front() else { break };
            lane.size -= event.size();
            self.entries -= 1;
            self.size -= event.size();
            batch.push(event);
        }
        batch
    }

    /// Removes and returns the events created at `until_ms` or before, Unix milliseconds.
    pub fn expire(&mut self, until_ms: u64) -> Vec<WrittenEvent> {
        let mut gone = Vec::new();
        for lane in &mut self.lanes {
            while let Some(queued) = lane.waiting.pop_front_if(|queued| queued.event.time_ms <= until_ms) {
                lane.size -= queued.event.size();
                self.entries -= 1;
                self.size -= queued.event.size();
                gone.push(queued.event);
            }
        }
        gone
    }

    /// The number of events that wait.
    pub fn len(&self) -> usize {
        self.entries
    }

    /// Whether no event waits.
    pub fn is_empty(&self) -> bool {
        self.entries == 0
    }

    /// The size of the events that wait, bytes.
    pub fn size(&self) -> usize {
        self.size
    }

    /// When the oldest waiting event was created, Unix milliseconds; `None` = no event waits.
    pub fn oldest_ms(&self) -> Option<u64> {
        self.lanes.iter().filter_map(|lane| lane.waiting.front()).map(|queued| queued.event.time_ms).min()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::events::{EventDraft, EventKind, EventOrigin, EventSources};

    pub(crate) fn event(key: &str, number: u64, time_ms: u64) -> WrittenEvent {
        let (kind, key) = (EventKind::UserOnline, key.to_owned());
        let (id, subject) = (format!("{key}:{number}"), key.clone());
        let draft = EventDraft {
            kind,
            id,
            subject,
            key,
            time_ms,
            generation: Some(number),
            origin: EventOrigin::Node,
            fields: Vec::new(),
        };
        draft.write(&EventSources::new("c", "n")).expect("it is small")
    }

    fn queue(lanes: usize, entries_max: usize, size_max: usize) -> EventQueue {
        EventQueue::new(EventQueueLimits { lanes, entries_max, size_max, batch_wait_ms: 100 })
    }

    #[test]
    fn a_batch_is_ready_when_it_is_full_or_its_first_event_has_waited() {
        let mut queue = queue(1, 10, 1_000_000);
        assert_eq!(queue.ready_at(0, 3), None);
        queue.push(event("a", 1, 0), 1_000);
        queue.push(event("a", 2, 0), 1_050);
        assert_eq!(queue.ready_at(0, 3), Some(1_100));
        queue.push(event("b", 1, 0), 1_060);
        assert_eq!(queue.ready_at(0, 3), Some(0));
        assert_eq!(queue.take(0, 2).len(), 2);
        assert_eq!((queue.len(), queue.ready_at(0, 3)), (1, Some(1_160)));
        assert_eq!(queue.take(0, 3).len(), 1);
        assert_eq!((queue.size(), queue.ready_at(0, 3), queue.take(0, 3)), (0, None, Vec::new()));
    }

    #[test]
    fn a_full_queue_drops_the_oldest_and_every_lane_tells_it_first() {
        let mut queue = queue(4, 3, 1_000_000);
        let reset = event("reset", 1, 0);
        for number in 1..=3 {
            assert_eq!(queue.push(event(&format!("k{number}"), 1, 7), 0).1, None);
        }
        assert_eq!(queue.push(event("k4", 1, 9), 0).1, Some(EventLoss { events: 1, since_ms: 7 }));
        queue.note_loss(&reset);
        let mut told = Vec::new();
        for lane in 0..4 {
            assert_eq!(queue.ready_at(lane, 100), Some(0));
            let batch = queue.take(lane, 100);
            assert_eq!(batch.first(), Some(&reset));
            told.extend(batch.into_iter().skip(1).map(|event| event.key));
        }
        told.sort();
        assert_eq!(told, ["k2".into(), "k3".into(), Box::<str>::from("k4")]);
    }

    #[test]
    fn events_that_are_too_old_go_and_no_others() {
        let mut queue = queue(2, 100, 1_000_000);
        for number in 1..=10 {
            queue.push(event("a", number, number), number);
            queue.push(event("b", number, number), number);
        }
        let gone = queue.expire(4);
        assert_eq!((gone.len(), queue.len(), queue.oldest_ms()), (8, 12, Some(5)));
    }

    fn reset(number: u64, since_ms: u64) -> WrittenEvent {
        let since = vec![("since", crate::events::EventValue::Time(since_ms))];
        let draft = EventDraft {
            kind: EventKind::StateReset,
            id: format!("reset:{number}"),
            subject: "n".into(),
            key: "all".into(),
            time_ms: 1_000_000,
            generation: None,
            origin: EventOrigin::Node,
            fields: since,
        };
        draft.write(&EventSources::new("c", "n")).expect("it is small")
    }

    proptest! {
        #[test]
        fn what_a_lane_is_told_of_a_loss_goes_back_to_all_that_was_lost(
            lanes in 1..5_usize,
            steps in prop::collection::vec((0..12_u8, 0..4_u8, 1..1_000_u64), 1..200),
        ) {
            let mut queue = queue(lanes, 5, 1_000_000);
            // The earliest loss that a lane has not reported yet.
            let mut untold = vec![None::<u64>; lanes];
            for (index, (key, step, time_ms)) in steps.iter().enumerate() {
                // A loss elsewhere may go back to any time.
                let loss = match step {
                    0 => Some(*time_ms),
                    1 | 2 => queue.push(event(&key.to_string(), 1, *time_ms), 0).1.map(|loss| loss.since_ms),
                    _ => None,
                };
                if let Some(since_ms) = loss {
                    queue.note_loss(&reset(index as u64, since_ms));
                    untold.iter_mut().for_each(|of| *of = Some(of.map_or(since_ms, |known| known.min(since_ms))));
                }
                if *step == 3 {
                    let lane = usize::from(*key) % lanes;
                    let told = queue.take(lane, 2).first().filter(|event| event.kind == EventKind::StateReset).cloned();
                    prop_assert_eq!(told.map(|reset| reset.since_ms), untold[lane].take());
                }
            }
        }

        #[test]
        fn order_holds_within_a_key_and_bounds_hold(
            lanes in 1..9_usize,
            steps in prop::collection::vec((0..12_u8, 0..3_u8), 1..200),
        ) {
            let mut queue = queue(lanes, 20, 9_000);
            let (mut numbers, mut told) = (BTreeMap::<u8, u64>::new(), BTreeMap::<Box<str>, u64>::new());
            let mut lost = 0;
            let mut taken = 0;
            for (index, (key, step)) in steps.iter().enumerate() {
                if *step < 2 {
                    let number = numbers.entry(*key).or_default();
                    *number += 1;
                    let (_, loss) = queue.push(event(&key.to_string(), *number, 0), index as u64);
                    lost += loss.map_or(0, |loss| loss.events);
                    prop_assert!(queue.len() <= 20 && queue.size() <= 9_000);
                } else {
                    let batch = queue.take(usize::from(*key) % lanes, 5);
                    prop_assert!(batch.len() <= 5);
                    taken += batch.len() as u64;
                    for event in batch {
                        let number = event.id.rsplit_once(':').and_then(|(_, number)| number.parse::<u64>().ok());
                        let number = number.expect("a number");
                        let before = told.insert(event.key.clone(), number).unwrap_or_default();
                        prop_assert!(before < number, "{} after {before}", event.id);
                    }
                }
            }
            prop_assert_eq!(numbers.values().sum::<u64>(), taken + lost + queue.len() as u64);
        }
    }
}
