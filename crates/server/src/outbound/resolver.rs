//! Finds the addresses of other servers by their names, as the system knows them.
//!
//! The system uses a thread for each look-up until it has an answer. If name servers cannot be reached, this takes a
//! minute or more, and the caller gives up long before. So a client has at most one look-up of a name under way. All
//! callers that ask for the name meanwhile share its answer.

use std::collections::HashMap;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use hyper_util::client::legacy::connect::dns::Name;
use tokio::sync::watch;
use touchline_lock::Lock;
use tower_service::Service;

/// The addresses that a look-up has found, or the error of the system.
type LookedUp = Result<Arc<[SocketAddr]>, Arc<str>>;

/// Looks a name up, and blocks a thread meanwhile.
type LookUp = dyn Fn(&str) -> io::Result<Vec<SocketAddr>> + Send + Sync;

/// Looks names up. Clones share the look-ups under way.
#[derive(Clone)]
pub(crate) struct Resolver {
    look_up: Arc<LookUp>,
    /// The look-ups under way, by name.
    under_way: Arc<Lock<HashMap<Name, watch::Receiver<Option<LookedUp>>>>>,
}

impl Resolver {
    /// Makes a resolver that asks the system.
    pub(super) fn of_system() -> Self {
        Resolver::new(|name| Ok((name, 0).to_socket_addrs()?.collect()))
    }

    fn new(look_up: impl Fn(&str) -> io::Result<Vec<SocketAddr>> + Send + Sync + 'static) -> Self {
        Resolver { look_up: Arc::new(look_up), under_way: Arc::default() }
    }

    /// Joins the look-up of a name that is under way. If there is none, one begins.
    fn join(&self, name: Name) -> watch::Receiver<Option<LookedUp>> {
        let mut under_way = self.under_way.lock();
        if let Some(found) = under_way.get(&name) {
            return found.clone();
        }
        let (told, found) = watch::channel(None);
        under_way.insert(name.clone(), found.clone());
        let resolver = self.clone();
        tokio::task::spawn_blocking(move || {
            let addresses = (resolver.look_up)(name.as_str());
            // Callers that ask from now on start another look-up.
            resolver.under_way.lock().remove(&name);
            told.send_replace(Some(addresses.map(Arc::from).map_err(|error| error.to_string().into())));
        });
        found
    }
}

impl Service<Name> for Resolver {
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let mut found = self.join(name);
        Box::pin(async move {
            let found = found.wait_for(Option::is_some).await.map_err(io::Error::other)?.clone();
            match found {
                Some(Ok(addresses)) => Ok(Vec::from(&*addresses).into_iter()),
                Some(Err(text)) => Err(io::Error::other(text.to_string())),
                None => Err(io::Error::other("the look-up has no outcome")),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
    use std::sync::{Condvar, Mutex};

    use super::*;

    /// A system that answers for `slow` when the test allows it.
    #[derive(Default)]
    struct SlowSystem {
        is_open: Mutex<bool>,
        opened: Condvar,
        begun: AtomicUsize,
    }

    impl SlowSystem {
        fn look_up(&self, name: &str) -> io::Result<Vec<SocketAddr>> {
            self.begun.fetch_add(1, SeqCst);
            if name == "nowhere" {
                return Err(io::Error::other("no such name"));
            }
            if name == "slow" {
                let is_open = self.is_open.lock().expect("no thread panics with it");
                drop(self.opened.wait_while(is_open, |is_open| !*is_open));
            }
            Ok(vec![SocketAddr::from(([127, 0, 0, 1], 0))])
        }

        fn open(&self) {
            *self.is_open.lock().expect("no thread panics with it") = true;
            self.opened.notify_all();
        }
    }

    fn name(text: &str) -> Name {
        text.parse().expect("a name")
    }

    #[tokio::test]
    async fn a_slow_name_has_one_look_up_and_delays_no_other_one() {
        let system = Arc::new(SlowSystem::default());
        let asked = Arc::clone(&system);
        let mut resolver = Resolver::new(move |name| asked.look_up(name));
        // A caller that gives up leaves the look-up alone, and a caller that asks again joins it.
        for _ in 0..50 {
            let mut asking = resolver.clone();
            let pending = tokio::spawn(asking.call(name("slow")));
            tokio::task::yield_now().await;
            pending.abort();
        }
        let waiting = resolver.call(name("slow"));
        assert_eq!(resolver.call(name("quick")).await.expect("it is known").len(), 1);
        let error = resolver.call(name("nowhere")).await.expect_err("it is not known");
        assert_eq!(error.to_string(), "no such name");
        assert_eq!(system.begun.load(SeqCst), 3, "one for each name");
        system.open();
        assert_eq!(waiting.await.expect("it is known").len(), 1);
        // An answer is not kept for later callers.
        assert_eq!(resolver.call(name("slow")).await.expect("it is known").len(), 1);
        assert_eq!(system.begun.load(SeqCst), 4);
        assert!(resolver.under_way.lock().is_empty());
    }
}
