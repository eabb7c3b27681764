//! What happens after the answers of an endpoint: whatever it answers, each event is finished once, in the order of its
//! key.

use std::collections::BTreeMap;

use proptest::prelude::*;
use touchline_engine::events::{
    BatchDelivery, BatchPace, DeadReason, EndpointReply, EventDraft, EventKind, EventOrigin, EventSources, Follow,
    WrittenEvent,
};

/// The greatest age of an event, milliseconds.
const MAX_AGE_MS: u64 = 86_400_000;

fn event(number: u64) -> WrittenEvent {
    let draft = EventDraft {
        kind: EventKind::UserOnline,
        id: number.to_string(),
        subject: "s".into(),
        key: format!("user:{}", number % 3),
        time_ms: number,
        generation: Some(number),
        origin: EventOrigin::Cluster,
        fields: Vec::new(),
    };
    draft.write(&EventSources::new("c", "n")).expect("it is small")
}

fn batch(size: u64) -> BatchDelivery {
    BatchDelivery::new((1..=size).map(event).collect())
}

fn status(status: u16) -> EndpointReply {
    EndpointReply::Status { status, retry_after_ms: None }
}

fn ids(events: &[WrittenEvent]) -> Vec<u64> {
    events.iter().filter_map(|event| event.id.parse().ok()).collect()
}

#[test]
fn an_endpoint_that_fails_is_asked_again_ever_more_rarely() {
    let (mut delivery, mut pace) = (batch(3), BatchPace::new(100));
    let mut waits = Vec::new();
    for reply in [EndpointReply::Nothing, status(500), status(302), status(408), status(425), status(599)].repeat(3) {
        // The random part is used in full.
        assert_eq!(delivery.answered(reply, &mut pace, 1_000, u64::MAX), Follow::Again);
        assert_eq!(delivery.current().map(|(_, number)| number), Some(0), "the same batch");
        waits.push(pace.wait_ms(&delivery, MAX_AGE_MS, 1_000));
    }
    assert!(waits.windows(2).all(|pair| pair[0] <= pair[1] + pair[1] / 2), "{waits:?}");
    assert!(waits.iter().all(|wait| (50..=60_000).contains(wait)) && waits.last() > Some(&30_000), "{waits:?}");
    assert_eq!(pace.batch_max(), 100);
}

#[test]
fn an_endpoint_that_asks_to_wait_is_not_asked_before() {
    let (mut delivery, mut pace) = (batch(3), BatchPace::new(100));
    let reply = |status, retry_after_ms| EndpointReply::Status { status, retry_after_ms };
    let waits = |delivery: &BatchDelivery, pace: &BatchPace| pace.wait_ms(delivery, MAX_AGE_MS, 0);
    assert_eq!(delivery.answered(reply(429, Some(5_000)), &mut pace, 0, 0), Follow::Again);
    assert_eq!((pace.batch_max(), waits(&delivery, &pace)), (50, 5_000), "the next batches are smaller");
    assert_eq!(delivery.answered(reply(400, Some(9_000)), &mut pace, 0, 0), Follow::Again);
    assert_eq!(waits(&delivery, &pace), 9_000);
    assert_eq!(delivery.answered(reply(503, Some(u64::MAX)), &mut pace, 0, 0), Follow::Again);
    assert_eq!(waits(&delivery, &pace), 3_600_000);
    assert_eq!(delivery.current().map(|(events, _)| events.len()), Some(3));
    let Follow::Done(events) = delivery.answered(status(204), &mut pace, 0, 0) else { panic!("it has arrived") };
    assert_eq!((ids(&events), pace.batch_max()), (vec![1, 2, 3], 24));
}

#[test]
fn one_event_that_is_refused_does_not_stop_the_others() {
    let (mut delivery, mut pace) = (batch(10), BatchPace::new(100));
    let (mut done, mut dead, mut tries) = (Vec::new(), Vec::new(), BTreeMap::<Vec<u64>, u32>::new());
    while let Some((events, _)) = delivery.current() {
        let current = ids(events);
        *tries.entry(current.clone()).or_default() += 1;
        let reply = if current.contains(&7) { status(422) } else { status(200) };
        match delivery.answered(reply, &mut pace, 0, 0) {
            Follow::Done(events) => done.extend(ids(&events)),
            Follow::Dead(events, why) => dead.push((ids(&events), why)),
            Follow::Again | Follow::Cut => {}
            Follow::Off => panic!("nobody has said so"),
        }
    }
    assert_eq!(done, [1, 2, 3, 4, 5, 6, 8, 9, 10]);
    assert_eq!(dead, [(vec![7], DeadReason::Refused)]);
    assert_eq!(tries[&(1..=10).collect::<Vec<_>>()], 5, "a deployment may be half done");
    assert_eq!((tries[&vec![6, 7, 8, 9, 10]], tries[&vec![7]]), (1, 5));
}

#[test]
fn a_batch_that_is_too_large_is_cut_at_once() {
    let (mut delivery, mut pace) = (batch(3), BatchPace::new(100));
    assert_eq!(delivery.answered(status(413), &mut pace, 0, 0), Follow::Cut);
    assert_eq!(delivery.current().map(|(events, number)| (ids(events), number)), Some((vec![1], 1)));
    let dead = delivery.answered(status(413), &mut pace, 0, 0);
    assert_eq!(dead, Follow::Dead(vec![event(1)], DeadReason::TooLarge));
    assert_eq!(delivery.answered(status(410), &mut pace, 0, 0), Follow::Off);
    assert_eq!(delivery.current().map(|(events, _)| ids(events)), Some(vec![2, 3]), "they are kept");
}

#[test]
fn what_is_too_old_goes_and_the_rest_is_a_new_batch() {
    let (mut delivery, mut pace) = (batch(4), BatchPace::new(100));
    assert_eq!(delivery.expire(0), Vec::new());
    assert_eq!(ids(&delivery.expire(2)), [1, 2]);
    assert_eq!(delivery.current().map(|(events, number)| (ids(events), number)), Some((vec![3, 4], 1)));
    assert_eq!(delivery.answered(EndpointReply::Nothing, &mut pace, 0, 0), Follow::Again);
    assert_eq!((ids(&delivery.expire(9)), delivery.current()), (vec![3, 4], None));
}

#[test]
fn a_wait_ends_when_an_event_becomes_too_old_and_holds_for_the_next_batch() {
    let (mut delivery, mut pace) = (batch(2), BatchPace::new(100));
    let asks = EndpointReply::Status { status: 503, retry_after_ms: Some(600_000) };
    assert_eq!(delivery.answered(asks, &mut pace, 500, 0), Follow::Again);
    assert_eq!((delivery.oldest_ms(), pace.wait_ms(&delivery, 1_000, 500)), (Some(1), 501));
    assert_eq!(ids(&delivery.expire(1)), [1]);
    assert_eq!((delivery.oldest_ms(), pace.wait_ms(&delivery, 1_000, 1_001)), (Some(2), 1));
    assert_eq!(ids(&delivery.expire(2)), [2]);
    assert_eq!((delivery.oldest_ms(), delivery.current()), (None, None));
    let next = BatchDelivery::new(vec![event(600_400)]);
    assert_eq!(pace.wait_ms(&next, 1_000, 600_400), 100, "the endpoint has asked for it");
    assert_eq!(pace.wait_ms(&next, 1_000, 600_500), 0);
}

proptest! {
    #[test]
    fn each_event_has_one_end_and_no_body_changes(
        size in 1..60_u64,
        answers in prop::collection::vec(prop_oneof![
            Just(200), Just(204), Just(400), Just(404), Just(408), Just(413), Just(429), Just(500), Just(503), Just(0),
        ], 1..400),
    ) {
        let (mut delivery, mut pace) = (batch(size), BatchPace::new(100));
        let (mut ended, mut sent) = (Vec::new(), BTreeMap::<u64, Vec<u64>>::new());
        let mut answers = answers.into_iter().chain(std::iter::repeat_n(200, 200));
        while let Some((events, number)) = delivery.current() {
            let current = ids(events);
            prop_assert!(events.iter().zip(&current).all(|(sent, number)| *sent == event(*number)));
            let before = sent.entry(number).or_insert_with(|| current.clone());
            prop_assert_eq!(&*before, &current, "one number, one batch");
            let answer = answers.next().expect("it ends");
            let reply = if answer == 0 { EndpointReply::Nothing } else { status(answer) };
            match delivery.answered(reply, &mut pace, 5, 7) {
                Follow::Done(events) | Follow::Dead(events, _) => ended.extend(ids(&events)),
                Follow::Again => prop_assert!(pace.wait_ms(&delivery, MAX_AGE_MS, 5) > 0),
                Follow::Cut => {}
                Follow::Off => prop_assert!(false, "nobody has said so"),
            }
            prop_assert!((1..=100).contains(&pace.batch_max()));
        }
        prop_assert_eq!(ended, (1..=size).collect::<Vec<_>>());
    }
}
