//! The number of connections of each user on this node, over all shards. It is used only if
//! `client.user_connection_limit` is set.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};

use touchline_engine::session::UserCounter;
use touchline_lock::{Lock, LockGuard};
use touchline_registry::spare_capacity;

/// How many parts the table has. Each has its own lock, so that shards rarely wait for each other.
const STRIPES: usize = 64;

/// The number of connections by user.
pub(crate) struct UserCounts {
    limit: usize,
    hasher: RandomState,
    stripes: Vec<Lock<HashMap<Box<str>, usize>>>,
}

impl UserCounts {
    /// Makes counts that are all 0. `limit`: how many connections one user may have.
    pub(crate) fn new(limit: usize) -> Self {
        UserCounts { limit, hasher: RandomState::new(), stripes: (0..STRIPES).map(|_| Lock::default()).collect() }
    }

    fn stripe(&self, user: &str) -> LockGuard<'_, HashMap<Box<str>, usize>> {
        let index = self.hasher.hash_one(user) as usize % STRIPES;
        self.stripes[index].lock()
    }
}

impl UserCounter for UserCounts {
    fn take(&self, user: &str) -> bool {
        let mut stripe = self.stripe(user);
        match stripe.get_mut(user) {
            Some(count) if *count >= self.limit => false,
            Some(count) => {
                *count += 1;
                true
            }
            None => {
                stripe.insert(user.into(), 1);
                true
            }
        }
    }

    fn give_back(&self, user: &str) {
        let mut stripe = self.stripe(user);
        if let Some(count) = stripe.get_mut(user) {
            *count -= 1;
            if *count == 0 {
                stripe.remove(user);
                if let Some(capacity) = spare_capacity(stripe.len(), stripe.capacity()) {
                    stripe.shrink_to(capacity);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_user_has_so_many_and_who_is_gone_is_forgotten() {
        let counts = UserCounts::new(2);
        assert_eq!(
            [counts.take("ann"), counts.take("ann"), counts.take("ann"), counts.take("bob")],
            [true, true, false, true]
        );
        counts.give_back("ann");
        assert_eq!([counts.take("ann"), counts.take("ann")], [true, false]);
        ["ann", "ann", "bob"].iter().for_each(|user| counts.give_back(user));
        counts.give_back("nobody");
        assert!(counts.stripes.iter().all(|stripe| stripe.lock().is_empty()));
    }

    #[test]
    fn many_threads_never_have_more() {
        let counts = UserCounts::new(3);
        let most = std::sync::atomic::AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..1_000 {
                        if counts.take("ann") {
                            let held = *counts.stripe("ann").get("ann").expect("one is held");
                            most.fetch_max(held, std::sync::atomic::Ordering::Relaxed);
                            counts.give_back("ann");
                        }
                    }
                });
            }
        });
        assert!(most.into_inner() <= 3);
        assert!(counts.stripe("ann").is_empty(), "each was given back once");
    }
}
