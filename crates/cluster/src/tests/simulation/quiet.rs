//! What must hold when all is quiet.

use std::collections::BTreeMap;

use touchline_engine::bans::Ban;
use touchline_protocol::stream::ChannelName;

use super::fan::FanState;
use super::truth::{between, stored};
use super::world::{CHANGE_LIMIT_MS, ClusterDay, DURABLE, KEPT, NAMES, PASSING, USERS};

impl ClusterDay {
    /// Everything works again. In the end all nodes agree, and each subscriber has everything.
    pub(super) async fn calm_down(&mut self) {
        self.is_calm = true;
        self.mend_streams();
        self.mend_store();
        self.nats.state().cut.clear();
        self.nats.state().streams.doubles = 0;
        for index in 0..self.nodes.len() {
            self.mend_link(index);
            if self.nodes[index].is_none() {
                self.start(index);
            }
        }
        self.pass(CHANGE_LIMIT_MS).await;
        assert!(self.awaited.is_empty(), "a request was never answered");
        for _ in 0..3 {
            for index in 0..self.nodes.len() {
                let fans = self.nodes[index].as_ref().map_or(0, |node| node.fans.len());
                for fan in 0..fans {
                    if self.nodes[index].as_ref().is_some_and(|node| node.fans[fan].state == FanState::Away) {
                        self.come(index, fan);
                    }
                }
            }
            self.pass(6_000).await;
        }
        // One publication in each channel reaches all its subscribers.
        for channel in KEPT.iter().chain(&DURABLE).chain(&PASSING) {
            self.publish(0, &(*channel).into(), 10);
        }
        let last = self.published;
        self.pass(1_000).await;
        self.check_fans(last);
        self.check_nodes();
        self.check_stored();
        self.check_reports();
    }

    fn check_fans(&self, last: u64) {
        for (index, node) in self.nodes.iter().enumerate() {
            let Some(node) = node else { continue };
            assert!(node.is_linked, "node {index} is not linked");
            for fan in &node.fans {
                assert_eq!(fan.state, FanState::Live, "a subscriber of {} at node {index} waits", fan.channel);
                if !fan.channel.starts_with("passing:") {
                    let missed =
                        between((&self.nats, &self.store), &fan.channel, fan.last.unwrap_or_default(), u64::MAX);
                    assert!(missed.is_empty(), "{missed:?} of {} did not come to node {index}", fan.channel);
                } else {
                    let number = PASSING.iter().position(|channel| **channel == *fan.channel).unwrap_or_default();
                    let due = last - (PASSING.len() - 1 - number) as u64;
                    assert_eq!(fan.of_nodes.get(&self.numbers[0]), Some(&due), "{} at node {index}", fan.channel);
                }
            }
        }
    }

    /// All nodes know the same names and bans.
    fn check_nodes(&mut self) {
        let now_ms = self.now_ms;
        for name in NAMES {
            let owners: Vec<String> = self.nodes.iter_mut().flatten().map(|node| node.owner(name, now_ms)).collect();
            assert!(owners.windows(2).all(|pair| pair[0] == pair[1]), "the owners of {name}: {owners:?}");
        }
        for (user, (is_banned, is_known)) in USERS.iter().zip(self.bans) {
            let ban = Ban::User((*user).into());
            let known: Vec<bool> =
                self.nodes.iter().flatten().map(|node| node.bans.knows(&ban, now_ms / 1_000)).collect();
            assert!(known.windows(2).all(|pair| pair[0] == pair[1]), "who knows that {user} is banned: {known:?}");
            if is_known && !self.has_lost {
                assert_eq!(known[0], is_banned, "{user}");
            }
        }
    }

    /// What was acknowledged is there once, at its position.
    fn check_stored(&self) {
        let all: Vec<(ChannelName, u64, u64)> = stored((&self.nats, &self.store));
        let mut times: BTreeMap<u64, usize> = BTreeMap::new();
        all.iter().for_each(|(_, data, _)| *times.entry(*data).or_default() += 1);
        assert!(times.values().all(|times| *times == 1), "a publication was stored twice");
        for stored in &self.stored {
            if !self.has_lost || stored.0.starts_with("durable:") {
                assert!(all.contains(stored), "{stored:?} was acknowledged and is not there");
            }
        }
    }
}
