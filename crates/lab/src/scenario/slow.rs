//! A slow database must not stop other clients: history of a warm channel while other requests wait for a query that
//! takes a second. For comparison, two event loops that give the same answers and block on the query.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use mio::net::TcpListener;
use mio::{Events, Interest, Poll, Token};
use socket2::{Domain, Socket, Type};

use super::bare::REST;
use crate::arguments::{Options, Slow};
use crate::guard::{self, POSTMASTER};
use crate::publisher::{PublishClient, answer};
use crate::report::{Figure, Results, median};
use crate::server_under_test::{LabDatabase, ServerUnderTest};
use crate::socket::LabStream;
use crate::wire;
use touchline_testkit::postgres::PostgresServer;

const WARM: &str = r#"{"channel":"durable:warm","limit":10}"#;
/// Duration of the query of a slow channel.
const NAP: Duration = Duration::from_secs(1);
/// The time before anything is counted, in which the first slow requests are answered.
const LEAD: Duration = Duration::from_millis(1_200);
/// Pairs of measurements, one with and one without slow requests; the result is the median of their ratios.
const PAIRS: usize = 5;
/// How long a poll of the sockets waits.
const TURN: Duration = Duration::from_millis(50);
/// Most slow requests at a time: three times as many as the server's database connections.
const SLOW_MAX: usize = 192;
/// Event loops that block on the database.
const BLOCKING: usize = 2;

/// One run: every mix, on the server and on the blocking loops.
pub(super) fn slow(slow: &Slow, options: &Options, results: &mut Results) -> Result<()> {
    if !PostgresServer::is_installed() {
        bail!("no PostgreSQL here; Debian has it as the package postgresql");
    }
    let scratch = LabDatabase::new();
    guard::remove_with_lab(&scratch.0);
    guard::end_named_by(scratch.0.join(POSTMASTER));
    let postgres = PostgresServer::start_with(&scratch.0, &[], "");
    let url = prepare(&postgres);
    // Makes the schema, which the policy is for.
    warm(&ServerUnderTest::start_on_postgres(options, &url)?.api)?;
    make_slow(&postgres);
    let lasting = Duration::from_secs(slow.seconds);
    for concurrency in &slow.concurrency {
        let scenario: &'static str =
            Box::leak(format!("slow database, {concurrency} requests at a time").into_boxed_str());
        for one_in in &slow.one_in {
            let server = ServerUnderTest::start_on_postgres(options, &url)?;
            let bytes = warm(&server.api)?;
            let mut clients = SlowClients::new(&server.api, *concurrency)?;
            // At first PostgreSQL makes a process for each connection.
            clients.request(*one_in, lasting)?;
            let mut pairs = Vec::new();
            for pair in 0..PAIRS {
                // The machine's speed changes by the second, so the two measurements take turns in being the first.
                let first = clients.request(if pair % 2 == 0 { 0 } else { *one_in }, lasting)?;
                let second = clients.request(if pair % 2 == 0 { *one_in } else { 0 }, lasting)?;
                pairs.push(if pair % 2 == 0 { (first, second) } else { (second, first) });
            }
            drop(clients);
            drop(server);
            let blocking = Blocking::start(&bytes)?;
            let mut clients = SlowClients::new(&blocking.api, *concurrency)?;
            let (fast_of_blocking, beside_of_blocking) =
                (clients.request(0, lasting)?, clients.request(*one_in, lasting)?);
            let figure = |text: &str, unit| {
                Figure::new(scenario, Box::leak(format!("1 in {one_in} slow: {text}").into_boxed_str()), unit)
            };
            let median = |of: fn(&(Answer, Answer)) -> f64| median(&pairs.iter().map(of).collect::<Vec<_>>());
            results.add(figure("fast ones without them", "/s"), median(|(without, _)| without.fast));
            results.add(figure("fast ones beside them", "/s"), median(|(_, beside)| beside.fast));
            results.add(figure("slow ones", "/s"), median(|(_, beside)| beside.slow));
            results.add(
                figure("of the fast ones remain", "×").at_least(0.95, 1.0),
                median(|(without, beside)| beside.fast / without.fast),
            );
            results
                .add(figure("where the loops wait themselves", "×"), beside_of_blocking.fast / fast_of_blocking.fast);
        }
    }
    Ok(())
}

/// Creates a PostgreSQL user that is subject to row policies.
fn prepare(postgres: &PostgresServer) -> String {
    postgres
        .sql("CREATE ROLE lab LOGIN; GRANT CREATE ON DATABASE postgres TO lab; GRANT CREATE ON SCHEMA public TO lab");
    postgres.url().replacen("postgres@", "lab@", 1)
}

/// Makes each query of a slow channel slow from now on.
fn make_slow(postgres: &PostgresServer) {
    let nap = NAP.as_secs_f64();
    postgres.sql(&format!(
        "INSERT INTO touchline.channel \
           (name, epoch, top, oldest, version, version_epoch, ttl_ms, meta_ttl_ms, due_ms, run) \
         SELECT 'durable:slow' || n, n, 0, 1, 0, '', 0, 0, 9223372036854775807, 0 FROM generate_series(1, 100000) n; \
         ALTER TABLE touchline.channel ENABLE ROW LEVEL SECURITY; \
         ALTER TABLE touchline.channel FORCE ROW LEVEL SECURITY; \
         CREATE POLICY slow ON touchline.channel \
           USING \
         (CASE WHEN name LIKE 'durable:slow%' THEN pg_sleep({nap})::text = '' ELSE true END) \
           WITH CHECK (true)"
    ));
    // PostgreSQL would vacuum so many new rows by itself at some time; it does so now, before the measurement.
    postgres.sql("VACUUM ANALYZE touchline.channel");
    postgres.sql("CHECKPOINT");
}

/// Publishes into the warm channel, so that it is in memory. Returns the answer to its history from then on.
fn warm(api: &PublishClient) -> Result<Vec<u8>> {
    let mut socket = api.connect()?;
    let mut request = |operation: &str, body: &str| -> Result<Vec<u8>> {
        socket.write_all(&api.call(operation, body))?;
        let (mut whole, mut some) = (Vec::new(), [0; 16_384]);
        while answer(&whole)?.is_none() {
            match socket.read(&mut some)? {
                0 => bail!("the server closed the connection"),
                length => whole.extend_from_slice(&some[..length]),
            }
        }
        Ok(whole)
    };
    for number in 0..10 {
        request(
            "publish",
            &format!(r#"{{"channel":"durable:warm","data":{}}}"#, wire::data(number, crate::process::now_us(), 128)),
        )?;
    }
    let answer = request("history", WARM)?;
    std::thread::sleep(REST);
    Ok(answer)
}

/// Answers per second.
struct Answer {
    fast: f64,
    slow: f64,
}

/// Connections that send a request, and the next one as soon as it is answered. They stay open, so that their
/// distribution over the server's shards does not change.
struct SlowClients<'a> {
    api: &'a PublishClient,
    poll: Poll,
    /// The connections of fast requests, then those of slow ones.
    asking: Vec<Asking>,
    concurrency: usize,
    fast_request: Vec<u8>,
    /// The connections of slow requests that wait for no answer.
    idle: Vec<usize>,
    /// Slow requests sent so far.
    asked: u64,
}

struct Asking {
    socket: LabStream<mio::net::TcpStream>,
    rest: Vec<u8>,
}

impl<'a> SlowClients<'a> {
    /// Opens so many connections of each kind, and sends the first fast requests.
    fn new(api: &'a PublishClient, concurrency: usize) -> Result<Self> {
        let poll = Poll::new()?;
        let all = concurrency + concurrency.min(SLOW_MAX);
        let mut asking = (0..all).map(|index| Asking::new(api, &poll, index)).collect::<Result<Vec<_>>>()?;
        let fast_request = api.call("history", WARM);
        asking[..concurrency].iter_mut().try_for_each(|asking| asking.socket.write_all(&fast_request))?;
        Ok(SlowClients { api, poll, asking, concurrency, fast_request, idle: (concurrency..all).collect(), asked: 0 })
    }

    /// Sends requests for a while. After each `one_in` fast requests a slow one is due; 0 = none is, and none is left
    /// from before.
    fn request(&mut self, one_in: u64, lasting: Duration) -> Result<Answer> {
        if one_in > 0 {
            self.ask_until(one_in, Instant::now() + LEAD)?;
        }
        while one_in == 0 && self.idle.len() < self.asking.len() - self.concurrency {
            self.ask_until(0, Instant::now() + TURN)?;
        }
        let began = Instant::now();
        let (fast, slow) = self.ask_until(one_in, began + lasting)?;
        let seconds = began.elapsed().as_secs_f64();
        Ok(Answer { fast: fast as f64 / seconds, slow: slow as f64 / seconds })
    }

    /// Counts the fast and slow requests that are answered before `until`.
    fn ask_until(&mut self, one_in: u64, until: Instant) -> Result<(u64, u64)> {
        let (mut fast, mut slow, mut due) = (0u64, 0u64, 0u64);
        let mut events = Events::with_capacity(1_024);
        while Instant::now() < until {
            self.poll.poll(&mut events, Some(TURN))?;
            for event in &events {
                let index = event.token().0;
                let answers = self.asking[index].answers()?;
                if index >= self.concurrency {
                    slow += answers;
                    self.idle.extend((answers > 0).then_some(index));
                    continue;
                }
                for _ in 0..answers {
                    fast += 1;
                    due += u64::from(one_in > 0 && fast % one_in == 0);
                    self.asking[index].socket.write_all(&self.fast_request)?;
                }
            }
            while due > 0
                && let Some(index) = self.idle.pop()
            {
                (due, self.asked) = (due - 1, self.asked + 1);
                let request =
                    self.api.call("history", &format!(r#"{{"channel":"durable:slow{}","limit":10}}"#, self.asked));
                self.asking[index].socket.write_all(&request)?;
            }
            // Slow requests that could not be sent in time are not made up for.
            due = due.min(self.concurrency as u64);
        }
        Ok((fast, slow))
    }
}

impl Asking {
    fn new(api: &PublishClient, poll: &Poll, index: usize) -> Result<Self> {
        let mut socket = api.connect()?.into_polled()?;
        poll.registry().register(socket.socket_mut(), Token(index), Interest::READABLE)?;
        Ok(Asking { socket, rest: Vec::new() })
    }

    /// Reads what has arrived. Returns the number of whole answers.
    fn answers(&mut self) -> Result<u64> {
        let mut scratch = [0; 16_384];
        let mut answers = 0;
        loop {
            match self.socket.read(&mut scratch) {
                Ok(0) => bail!("the server closed a connection"),
                Ok(length) => self.rest.extend_from_slice(&scratch[..length]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(answers),
                Err(error) => return Err(error.into()),
            }
            while let Some(length) = answer(&self.rest)? {
                self.rest.drain(..length);
                answers += 1;
            }
        }
    }
}

/// Event loops that block as they would on a blocking database driver. They end some time after this is dropped.
struct Blocking {
    api: PublishClient,
    is_over: Arc<AtomicBool>,
}

impl Drop for Blocking {
    fn drop(&mut self) {
        self.is_over.store(true, Relaxed);
    }
}

impl Blocking {
    /// Threads that answer every request with these bytes, and wait a second first where the channel is slow.
    fn start(bytes: &[u8]) -> Result<Self> {
        let (mut address, is_over) = (SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), Arc::<AtomicBool>::default());
        for _ in 0..BLOCKING {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
            socket.set_reuse_port(true)?;
            socket.set_nonblocking(true)?;
            socket.bind(&address.into())?;
            socket.listen(4_096)?;
            let listener = std::net::TcpListener::from(socket);
            address = listener.local_addr()?;
            let (bytes, is_over) = (bytes.to_vec(), Arc::clone(&is_over));
            let work = move || {
                if let Err(error) = serve(TcpListener::from_std(listener), &bytes, &is_over) {
                    eprintln!("a blocking loop ended: {error}");
                }
            };
            std::thread::Builder::new().name("blocking".into()).spawn(work).context("failed to start a thread")?;
        }
        Ok(Blocking { api: PublishClient { address, key: "lab".to_owned(), is_tls: false }, is_over })
    }
}

fn serve(mut listener: TcpListener, bytes: &[u8], is_over: &AtomicBool) -> Result<()> {
    const DOOR: Token = Token(usize::MAX);
    let mut poll = Poll::new()?;
    poll.registry().register(&mut listener, DOOR, Interest::READABLE)?;
    let mut guests: Vec<(mio::net::TcpStream, Vec<u8>)> = Vec::new();
    let mut events = Events::with_capacity(1_024);
    let mut scratch = [0; 16_384];
    while !is_over.load(Relaxed) {
        poll.poll(&mut events, Some(NAP))?;
        for event in events.iter().take_while(|_| !is_over.load(Relaxed)) {
            if event.token() == DOOR {
                while let Ok((mut socket, _)) = listener.accept() {
                    socket.set_nodelay(true)?;
                    poll.registry().register(&mut socket, Token(guests.len()), Interest::READABLE)?;
                    guests.push((socket, Vec::new()));
                }
                continue;
            }
            let (socket, rest) = &mut guests[event.token().0];
            while let Ok(length @ 1..) = socket.read(&mut scratch) {
                rest.extend_from_slice(&scratch[..length]);
            }
            // Bodies end with the only brace of a request.
            while let Some(end) = wire::find(rest, b"}") {
                let request: Vec<u8> = rest.drain(..=end).collect();
                if wire::find(&request, b"durable:slow").is_some() {
                    std::thread::sleep(NAP);
                }
                // A client that has left by now gets no answer.
                let _ = socket.write_all(bytes);
            }
        }
    }
    Ok(())
}
