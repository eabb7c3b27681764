//! What happens to a cluster in a day.

use super::fan::{FanState, SimulatedFan};
use super::nats::LinkFault;
use super::world::{ClusterDay, DURABLE, KEPT, NAMES, PASSING, USERS};

impl ClusterDay {
    /// Does something at random: mostly work of clients, sometimes a fault, sometimes the end of one.
    pub(super) fn disturb(&mut self) {
        let index = self.random.below(self.nodes.len() as u64) as usize;
        let (kept, passing) = (KEPT[self.random.below(2) as usize], PASSING[self.random.below(2) as usize]);
        let durable = DURABLE[self.random.below(2) as usize];
        let kind = self.random.below(240);
        self.trace.note(|| format!("{} disturbance {kind} of node {index}", self.now_ms));
        match kind {
            0..40 => self.publish(index, &kept.into(), 10),
            40..70 => self.publish(index, &passing.into(), 10),
            // A burst, which fills the queues.
            70..74 => {
                for _ in 0..self.random.below(150) {
                    self.publish(index, &passing.into(), 500);
                }
            }
            74..110 => {
                let channel = [kept, passing, durable][self.random.below(3) as usize];
                self.move_fan(index, channel);
            }
            110..130 => {
                let (name, is_wanted) = (NAMES[self.random.below(4) as usize], self.random.chance(70));
                let client = self.numbers[index] * 10 + self.random.below(3) + 1;
                let now_ms = self.now_ms;
                if let Some(node) = &mut self.nodes[index] {
                    match self.random.chance(15) {
                        true => node.close(client, now_ms),
                        false => node.register((client, name), is_wanted, now_ms),
                    }
                }
            }
            130..140 => {
                let (user, is_banned) = (self.random.below(USERS.len() as u64) as usize, self.random.chance(60));
                self.ban(index, user, is_banned);
            }
            140..143 => self.purge(index, &kept.into()),
            143..163 => self.break_link(index),
            163..178 => self.mend_link(index),
            178..186 => self.break_streams(),
            186..192 => self.mend_streams(),
            192..195 => {
                let other = self.random.below(self.nodes.len() as u64) as usize;
                self.nats.state().cut.insert((index, other));
            }
            195..197 => self.nats.state().cut.clear(),
            197..199 if self.nodes.iter().flatten().count() > 1 && self.nodes[index].is_some() => self.kill(index),
            197..200 if self.nodes[index].is_none() => self.start(index),
            200..225 => self.publish(index, &durable.into(), 10),
            225..232 => self.break_store(index),
            232..240 => self.mend_store(),
            _ => {}
        }
    }

    fn break_store(&mut self, index: usize) {
        match self.random.below(4) {
            0 => self.store.is_frozen = true,
            1 => self.store.is_full = true,
            2 => self.store.loses_replies = 30,
            _ => self.store.deaf.push(self.numbers[index]),
        }
    }

    pub(super) fn mend_store(&mut self) {
        (self.store.is_frozen, self.store.is_full, self.store.loses_replies) = (false, false, 0);
        let deaf = std::mem::take(&mut self.store.deaf);
        deaf.into_iter().for_each(|node| self.store.listen(node, self.now_ms));
    }

    fn move_fan(&mut self, index: usize, channel: &str) {
        let Some(node) = &mut self.nodes[index] else { return };
        if node.fans.len() < 5 && self.random.chance(40) {
            let slot = node.fans.len() as u32;
            node.fans.push(SimulatedFan::new(channel.into(), slot));
        }
        if node.fans.is_empty() {
            return;
        }
        let fan = self.random.below(node.fans.len() as u64) as usize;
        match node.fans[fan].state {
            FanState::Away => self.come(index, fan),
            _ => self.go(index, fan),
        }
    }

    fn break_link(&mut self, index: usize) {
        let mut fault = LinkFault::default();
        match self.random.below(7) {
            0 => (fault.is_in_blocked, fault.is_out_blocked) = (true, true),
            1 => fault.is_in_blocked = true,
            2 => fault.is_out_blocked = true,
            3 => fault.is_refused = true,
            4 => fault.drops = 5 + self.random.below(30),
            5 => fault.reads = 1,
            _ => fault.is_without_streams = true,
        }
        let is_blocked = fault.is_in_blocked || fault.is_out_blocked;
        // What waited in the other direction arrives now.
        self.blocked_ms[index] = is_blocked.then_some(self.now_ms);
        self.nats.state().set_fault(index, fault);
    }

    pub(super) fn mend_link(&mut self, index: usize) {
        self.blocked_ms[index] = None;
        self.nats.state().set_fault(index, LinkFault::default());
    }

    fn break_streams(&mut self) {
        let kind = self.random.below(5);
        let many = 1 + self.random.below(5);
        let mut nats = self.nats.state();
        match kind {
            0 => nats.streams.is_away = true,
            1 => nats.streams.is_full = true,
            2 => nats.streams.loses_replies = 30,
            3 if self.loses => {
                let names: Vec<String> =
                    nats.streams.streams.keys().filter(|name| !name.starts_with("KV_")).cloned().collect();
                names.iter().for_each(|name| nats.streams.set_back(name, many));
                self.has_lost = true;
            }
            4 if self.loses => {
                nats.streams.forget();
                self.has_lost = true;
            }
            _ => {}
        }
    }

    pub(super) fn mend_streams(&mut self) {
        let streams = &mut self.nats.state().streams;
        (streams.is_away, streams.is_full, streams.loses_replies) = (false, false, 0);
    }
}
