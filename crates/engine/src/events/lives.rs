//! The life in which the clients of a shard are told. When another node has told them as gone, the node begins a new
//! life, and tells each of them again, step by step: until its turn comes a client is of the life before.

/// The lives of the clients of one shard, by their slots.
#[derive(Debug)]
pub struct TellingLives {
    /// The life of clients in slots below `reached`.
    now: u32,
    /// The life of the others.
    before: u32,
    /// The life that begins when all are of this one; not above it = none does.
    next: u32,
    /// `u32::MAX` = all clients are of this life.
    reached: u32,
}

impl Default for TellingLives {
    fn default() -> Self {
        TellingLives { now: 1, before: 1, next: 1, reached: u32::MAX }
    }
}

impl TellingLives {
    /// The life in which the client of a slot is told now.
    pub fn of(&self, slot: u32) -> u32 {
        if slot < self.reached { self.now } else { self.before }
    }

    /// A new life of the node begins.
    pub fn begin(&mut self, life: u32) {
        self.next = self.next.max(life);
        self.go_on();
    }

    /// The slot whose client, if it has one, is told again next; `None` = there is nothing to do. `slots`: how many
    /// there are.
    pub fn due(&mut self, slots: u32) -> Option<u32> {
        if self.reached != u32::MAX && self.reached >= slots {
            self.reached = u32::MAX;
            self.go_on();
        }
        (self.reached < slots).then_some(self.reached)
    }

    /// The life in which the client of the slot that is due is told again.
    pub fn coming(&self) -> u32 {
        self.now
    }

    /// The client of the slot that was due is told again, and of the new life from now on.
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

    /// What was told of clients, each with the life.
    #[derive(Default)]
    struct Told {
        all: BTreeSet<(u32, u32, bool)>,
        /// The client of each slot, and the last life that was told of it.
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

        /// Whether what is told of the end belongs to the beginning that was told last, and was not told before.
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
            // All that are there are of the last life.
            prop_assert!(told.slots.iter().flatten().all(|(_, of)| *of == life));
            prop_assert!((0..8).all(|slot| lives.of(slot) == life));
        }
    }
}
