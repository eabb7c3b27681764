//! A link to a server that a test can cut. Bytes over a cut link never arrive, as in a network that is gone, and
//! neither side is notified.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A link that exists until it is dropped.
pub(crate) struct Link {
    pub(crate) address: SocketAddr,
    state: Arc<LinkState>,
}

#[derive(Default)]
struct LinkState {
    /// Odd while the link is cut. A connection from before a cut never works again.
    cuts: AtomicU64,
    sockets: Mutex<Vec<TcpStream>>,
}

impl Link {
    /// Makes a link to a port of this machine.
    pub(crate) fn to(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = listener.local_addr().expect("it is bound");
        let state = Arc::<LinkState>::default();
        let of_thread = Arc::clone(&state);
        std::thread::spawn(move || {
            for near in listener.incoming().map_while(Result::ok) {
                let state = Arc::clone(&of_thread);
                std::thread::spawn(move || carry(near, port, &state));
            }
        });
        Link { address, state }
    }

    /// Cuts the link. Connections stay open and silent.
    pub(crate) fn cut(&self) {
        self.state.cuts.fetch_add(1, SeqCst);
    }

    /// Heals the link for new connections. Connections from before the cut are reset.
    pub(crate) fn heal(&self) {
        self.state.cuts.fetch_add(1, SeqCst);
        for socket in self.state.sockets.lock().expect("no thread panics with it").drain(..) {
            let _ = socket.shutdown(Shutdown::Both);
        }
    }
}

fn carry(near: TcpStream, port: u16, state: &Arc<LinkState>) {
    let began = state.cuts.load(SeqCst);
    state.sockets.lock().expect("no thread panics with it").push(near.try_clone().expect("a socket can be shared"));
    if began % 2 == 1 {
        // The kernel accepted it, and nothing answers.
        return;
    }
    let Ok(far) = TcpStream::connect(("127.0.0.1", port)) else {
        let _ = near.shutdown(Shutdown::Both);
        return;
    };
    let both = [near.try_clone().and_then(|near| Ok((near, far.try_clone()?))), Ok((far, near))];
    for (from, to) in both.into_iter().flatten() {
        let state = Arc::clone(state);
        std::thread::spawn(move || pass(from, to, began, &state));
    }
}

/// Passes bytes on in one direction as long as the link is not cut.
fn pass(mut from: TcpStream, mut to: TcpStream, began: u64, state: &LinkState) {
    let mut bytes = [0; 16 * 1024];
    let _ = from.set_read_timeout(Some(Duration::from_secs(600)));
    while let Ok(length @ 1..) = from.read(&mut bytes) {
        if state.cuts.load(SeqCst) != began {
            return;
        }
        if to.write_all(&bytes[..length]).is_err() {
            break;
        }
    }
    if state.cuts.load(SeqCst) == began {
        let _ = to.shutdown(Shutdown::Both);
        let _ = from.shutdown(Shutdown::Both);
    }
}
