//! The life in which each client of a shard is reported. When another node has reported this node's clients as gone,
//! the node begins a new life and reports each client again, step by step. Until its turn, a client belongs to the
//! previous life.

/// The lives of the clients of one shard, by their slots.
#[derive(Debug)]
pub struct TellingLives {
    /// The life of the clients in slots below `reached`.
    now: u32,
    /// The life of all other clients.
    before: u32,
    /// The life that begins once all clients are in the current one. If it is not higher than that, no further life
    /// begins.
    next: u32,
    /// The first slot that is not in the new life yet; `u32::MAX` = all clients are in the same life.
    reached: u32,
}

impl Default for TellingLives {
    fn default() -> Self {
        TellingLives { now: 1, before: 1, next: 1, reached: u32::MAX }
    }
}

impl TellingLives {
    /// The current life of the client in a slot.
    pub fn of(&self, slot: u32) -> u32 {
        if slot < self.reached { self.now } else { self.before }
    }

    /// Begins a new life of the node.
    pub fn begin(&mut self, life: u32) {
        self.next = self.next.max(life);
        self.go_on();
    }

    /// The slot whose client, if there is one, has to be reported again next; `None` = there is nothing to do. `slots`:
    /// the number of slots.
    pub fn due(&mut self, slots: u32) -> Option<u32> {
        if self.reached != u32::MAX && self.reached >= slots {
            self.reached = u32::MAX;
            self.go_on();
        }
        (self.reached < slots).then_some(self.reached)
    }

    /// The life in which the client of the due slot is reported again.
    pub fn coming(&self) -> u32 {
        self.now
    }

    /// Notes that the client of the due slot was reported again. From now on it belongs to the new life.
    pub fn enter(&mut self) {
        self.reached = self.reached.saturating_add(1);
    }

    fn go_on(&mut self) {
        if self.reached == u32::MAX && self.next > self.now {
            (self.before, self.now, self.reached) = (self.now, self.next, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    /// What was reported about clients, each with its life.
    #[derive(Default)]
    struct Told {
        all: BTreeSet<(u32, u32, bool)>,
        /// The client of each slot, and the last life in which it was reported.
        slots: Vec<Option<(u32, u32)>>,
        clients: u32,
    }

    impl Told {
        fn tell(&mut self, client: u32, life: u32, begins: bool) -> bool {
            self.all.insert((client, life, begins))
        }

        fn connect(&mut self, slot: usize, lives: &TellingLives) -> bool {
            let (client, life) = (self.clients, lives.of(slot as u32));
            self.clients += 1;
            self.slots[slot] = Some((client, life));
            self.tell(client, life, true)
        }

        /// Whether a reported end belongs to the beginning that was reported last, and is the first report of that end.
        fn leave(&mut self, slot: usize, lives: &TellingLives) -> bool {
            let Some((client, begun)) = self.slots[slot].take() else { return true };
            begun == lives.of(slot as u32) && self.tell(client, begun, false)
        }

        fn walk(&mut self, lives: &mut TellingLives) -> bool {
            let Some(slot) = lives.due(self.slots.len() as u32) else { return true };
            let life = lives.coming();
            lives.enter();
            let Some((client, begun)) = self.slots[slot as usize] else { return true };
            self.slots[slot as usize] = Some((client, life));
            begun < life && self.tell(client, life, true)
        }
    }

    proptest! {
        #[test]
        fn each_client_has_one_beginning_and_one_end_in_each_life(
            steps in prop::collection::vec((0..5_u8, 0..8_usize), 1..300),
        ) {
            let (mut lives, mut told, mut life) = (TellingLives::default(), Told::default(), 1);
            told.slots = vec![None; 8];
            for (step, slot) in steps {
                let holds = match step {
                    0 if told.slots[slot].is_none() => told.connect(slot, &lives),
                    0 | 1 => told.leave(slot, &lives),
                    2 | 3 => told.walk(&mut lives),
                    _ if slot == 0 => {
                        life += 1;
                        lives.begin(life);
                        true
                    }
                    _ => true,
                };
                prop_assert!(holds, "{:?} {:?}", lives, told.all);
            }
            while lives.due(8).is_some() {
                prop_assert!(told.walk(&mut lives));
            }
            // All clients that are connected belong to the last life.
            prop_assert!(told.slots.iter().flatten().all(|(_, of)| *of == life));
            prop_assert!((0..8).all(|slot| lives.of(slot) == life));
        }
    }
}
