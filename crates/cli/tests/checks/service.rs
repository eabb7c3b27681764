//! The binary under a service manager. The tests act as the service manager (sd_notify(3)).

use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::process::Command;
use std::time::{Duration, Instant};

use touchline_testkit::PATIENCE;

use crate::place::{KEY, Place, Server};

/// The socket of a service manager.
struct Manager(UnixDatagram);

impl Manager {
    fn new(place: &Place) -> Self {
        let socket = UnixDatagram::bind(place.0.file("notify")).expect("the directory is ours");
        socket.set_read_timeout(Some(PATIENCE)).expect("a time");
        Manager(socket)
    }

    /// Starts the server under this service manager. `watchdog`: the longest time between two messages of the server.
    fn serve(&self, place: &Place, watchdog: Option<Duration>) -> Server {
        let mut command = place.command(&["serve"]);
        command.env("NOTIFY_SOCKET", place.0.file("notify"));
        if let Some(watchdog) = watchdog {
            command.env("WATCHDOG_USEC", watchdog.as_micros().to_string());
        }
        Server::start(command)
    }

    /// The next message. It is empty if no message arrives in time.
    fn next(&self) -> String {
        let mut buffer = [0; 4_096];
        let length = self.0.recv(&mut buffer).unwrap_or_default();
        String::from_utf8_lossy(&buffer[..length]).into_owned()
    }

    /// The next message that contains a line, and the messages before it.
    fn message(&self, line: &str) -> (Vec<String>, String) {
        let mut before = Vec::new();
        loop {
            let message = self.next();
            assert!(!message.is_empty(), "no {line}, only {before:?}");
            if message.lines().any(|found| found == line) {
                return (before, message);
            }
            before.push(message);
        }
    }
}

#[test]
fn a_service_manager_is_told_of_start_reload_and_stop() {
    let place = Place::new("log.level = \"info\"\nshutdown.timeout = \"90s\"\n");
    let manager = Manager::new(&place);
    let mut server = manager.serve(&place, None);
    let (before, ready) = manager.message("READY=1");
    assert!(before.is_empty() && ready.contains("STATUS=serves at 127.0.0.1:"), "{before:?} {ready}");

    // A reload of the configuration with which the node started.
    server.0.signal("HUP");
    let (_, reloading) = manager.message("RELOADING=1");
    assert!(reloading.contains("MONOTONIC_USEC="), "{reloading}");
    let (_, ready) = manager.message("READY=1");
    assert!(ready.contains("STATUS=reload: no key has changed"), "{ready}");

    // First a configuration with an error, then one that needs a restart: the node keeps its settings.
    place.configure("log.level = \"loud\"\n");
    server.0.signal("HUP");
    let (_, ready) = manager.message("READY=1");
    assert!(ready.contains("STATUS=reload failed: the configuration has faults"), "{ready}");
    server.line("log.level: expected one of");
    place.configure("log.format = \"json\"\n");
    server.0.signal("HUP");
    let (_, ready) = manager.message("READY=1");
    assert!(ready.contains("these keys need a restart, and nothing was changed: log.format"), "{ready}");
    place.configure("log.level = \"debug\"\nclient.channel_limit = 5\nshutdown.timeout = \"90s\"\n");
    server.0.signal("HUP");
    let (_, ready) = manager.message("READY=1");
    let expected = "STATUS=reload: generation 2, changed: client.channel_limit, log.level";
    assert!(ready.contains(expected), "{ready}");
    server.0.signal("TERM");
    let (_, stopping) = manager.message("STOPPING=1");
    assert!(stopping.contains("EXTEND_TIMEOUT_USEC=110000000"), "{stopping}");
    assert_eq!(server.0.wait().code(), Some(0));
}

#[test]
fn the_watchdog_hears_of_a_node_that_turns_and_not_of_one_that_is_frozen() {
    let place = Place::new("");
    let manager = Manager::new(&place);
    let server = manager.serve(&place, Some(Duration::from_millis(400)));
    manager.message("READY=1");
    for _ in 0..3 {
        let began = Instant::now();
        manager.message("WATCHDOG=1");
        assert!(began.elapsed() < PATIENCE);
    }
    server.0.signal("STOP");
    manager.0.set_read_timeout(Some(Duration::from_secs(2))).expect("a time");
    // Messages that the server sent before it was frozen.
    while !manager.next().is_empty() {}
    assert_eq!(manager.next(), "", "a frozen process sends nothing");
    manager.0.set_read_timeout(Some(PATIENCE)).expect("a time");
    server.0.signal("CONT");
    manager.message("WATCHDOG=1");
}

#[test]
fn without_a_service_manager_nothing_is_told_and_one_that_is_gone_does_no_harm() {
    let place = Place::new("");
    let mut command = place.command(&["serve"]);
    command.env("NOTIFY_SOCKET", place.0.file("nobody"));
    let server = Server::start(command);
    server.line("cannot be notified");
    let address = server.address("ready");
    let published = place.run(&["publish", "a", "1", "--api", &format!("http://{address}"), "--key", KEY]);
    assert!(published.status.success());
}

#[test]
fn a_service_manager_that_does_not_read_holds_nothing_up() {
    let place = Place::new("");
    let manager = Manager::new(&place);
    let mut server = manager.serve(&place, Some(Duration::from_millis(20)));
    // The service manager does not read: about ten messages fit into the socket, and later ones do not.
    // waits: the server sends some fifty messages.
    std::thread::sleep(Duration::from_secs(1));
    let address = server.address("ready");
    let published = place.run(&["publish", "a", "1", "--api", &format!("http://{address}"), "--key", KEY]);
    assert!(published.status.success());
    server.0.signal("TERM");
    assert_eq!(server.0.wait().code(), Some(0));
}

#[test]
fn the_socket_can_have_an_abstract_name() {
    let name = format!("touchline-checks-{}", std::process::id());
    let bound = SocketAddr::from_abstract_name(&name).and_then(|address| UnixDatagram::bind_addr(&address));
    let manager = Manager(bound.expect("the name is free"));
    manager.0.set_read_timeout(Some(PATIENCE)).expect("a time");
    let place = Place::new("");
    let mut command = place.command(&["serve"]);
    command.env("NOTIFY_SOCKET", format!("@{name}"));
    let _server = Server::start(command);
    manager.message("READY=1");
}

#[test]
fn a_configuration_that_is_a_pipe_is_refused_and_holds_nothing_up() {
    let place = Place::new("");
    let manager = Manager::new(&place);
    let mut server = manager.serve(&place, None);
    manager.message("READY=1");
    let file = place.0.file("touchline.toml");
    std::fs::remove_file(&file).expect("the test owns it");
    assert!(Command::new("mkfifo").arg(&file).status().expect("it is there").success());
    server.0.signal("HUP");
    let (_, ready) = manager.message("READY=1");
    assert!(ready.contains("it is not a regular file"), "{ready}");
    server.0.signal("TERM");
    assert_eq!(server.0.wait().code(), Some(0));
}
