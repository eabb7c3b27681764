//! The cost of an operation does not grow with the number of channels or groups that there are. If it did, each of
//! these tests would take minutes.

use bytes::Bytes;
use touchline_engine::directory::{Directory, DirectoryRequest, Requester, ScopeId, ScopeOptions};
use touchline_engine::reactions::{ReactionBook, ReactionLimits};
use touchline_protocol::stream::ChannelName;
use touchline_registry::{HashSeed, OwnerId, ReplicaTiming};

const NOW_MS: u64 = 1_700_000_000_000;

#[test]
fn a_channel_opens_and_closes_however_many_close_by_themselves() {
    const CHANNELS: usize = 100_000;
    let limits = ReactionLimits { channels: CHANNELS, ttl_ms: 1_000, tick_ms: 250 };
    let mut book = ReactionBook::new("here", 1, limits, HashSeed::repeatable(7), NOW_MS);
    let channels: Vec<ChannelName> = (0..CHANNELS).map(|number| format!("match:{number}").into()).collect();
    for round in 0..2 {
        for (number, channel) in (1..).zip(&channels) {
            let closes_at_ms = NOW_MS + 60_000 + round * 1_000_000 + number;
            book.open(channel, ["boo".into()].into(), (3, closes_at_ms), NOW_MS).expect("there is room");
        }
    }
    // Half of them are closed, the others close by themselves.
    for channel in &channels[..CHANNELS / 2] {
        assert_eq!(book.close(channel, false, NOW_MS), Ok(true));
        book.finished(channel, NOW_MS);
    }
    assert!(book.opening(&channels[CHANNELS / 2]).is_some());
    book.tick(NOW_MS + 10_000_000);
    assert!(channels.iter().all(|channel| book.opening(channel).is_none()));
    for channel in &channels[CHANNELS / 2..] {
        assert!(book.is_finishing(channel));
        book.finished(channel, NOW_MS + 10_000_000);
    }
    book.tick(NOW_MS + 20_000_000);
    assert!(book.is_empty(), "they are forgotten");
}

#[test]
fn a_client_joins_and_leaves_however_many_groups_it_is_in() {
    const GROUPS: usize = 100_000;
    let options = ScopeOptions { name: "devices".into(), client_entries_limit: GROUPS, ..ScopeOptions::default() };
    let mut directory =
        Directory::<()>::new("here", &[options], &ReplicaTiming::default(), 7, HashSeed::repeatable(7), false, NOW_MS);
    let requester = |number| Requester { owner: OwnerId([number; 16]), user: Box::default(), is_backend: false };
    let ask = |directory: &mut Directory<()>, number, request| {
        directory.execute(&requester(number), request, None, NOW_MS);
        directory.effects().for_each(drop);
    };
    let group = |number: usize| Box::<str>::from(format!("group-{number}"));
    for client in [1, 2] {
        for number in 0..GROUPS {
            let join =
                DirectoryRequest::Join { scope: ScopeId(0), group: group(number), meta: Bytes::from_static(b"1") };
            ask(&mut directory, client, join);
        }
    }
    let members = |directory: &Directory<()>| directory.metrics().next().expect("there is one scope").members;
    assert_eq!(members(&directory), 2 * GROUPS as u64);
    for number in 0..GROUPS {
        ask(&mut directory, 1, DirectoryRequest::Leave { scope: ScopeId(0), group: group(number) });
    }
    assert_eq!(members(&directory), GROUPS as u64);
    ask(&mut directory, 2, DirectoryRequest::Close);
    assert_eq!(members(&directory), 0);
}
