//! `touchline serve`: reads the configuration, runs the server, handles signals, and drains.

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, Result, anyhow, bail};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::Notify;
use touchline_config::{DevelopmentPurpose, Flags, Location, Sources, WrittenKey};
use touchline_server::{PROBES, ReloadRefusal, Reloaded, Running, Server, ServerHandle, Settings, StartError};
use touchline_store::OpenError;

use super::dev;
use super::ephemeral::{self, Parent, ReadyFile};
use crate::arguments::ServeArguments;
use crate::client::api::named;
use crate::configuration_source::{ConfigurationSource, log_findings};
use crate::secret::development_secrets;
use crate::{descriptors, logging, service_manager};

/// Exit code after a second signal to stop: 128 plus the number of SIGINT, as in shells.
const STOPPED_AT_ONCE: u8 = 130;

/// Runs the server until a signal stops it.
pub(crate) fn run(arguments: ServeArguments) -> Result<ExitCode> {
    let parent = arguments.ephemeral.then(Parent::now);
    let ready = arguments.ephemeral.then(|| ReadyFile::prepare(arguments.ready_file.as_deref())).transpose()?;
    for (flag, is_there) in [("--open-to-network", arguments.open_to_network), ("--no-match", arguments.no_match)] {
        if is_there && !arguments.dev {
            bail!("{flag} needs --dev: otherwise the configuration decides who may connect, and no match plays");
        }
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("failed to start the signal loop")?;
    // A signal that arrives while the configuration is read waits until the server runs.
    let mut signals = {
        let _entered = runtime.enter();
        Signals::listen()?
    };
    let sources = sources(&arguments)?;
    let reading = if arguments.dev || arguments.ephemeral {
        touchline_config::read(&sources, &PROBES)
    } else {
        touchline_config::read_to_serve(&sources, &PROBES)
    };
    let written = reading.written.clone();
    let (configuration, findings) = reading.into_result()?;
    let level = logging::start(&configuration.log);
    log_findings(&findings);
    let descriptors = descriptors::raise();
    let settings = configuration.settings;
    let source = ConfigurationSource::new(sources, level);
    if arguments.ephemeral {
        ephemeral::check(&settings)?;
    }
    runtime.block_on(async {
        let api_key = place(&written, "http_api.key");
        let token_secret = place(&written, "client.token.hmac_secret_key");
        let running = start(settings.clone(), arguments.dev, Some((source, written)))?;
        let places = (api_key.as_ref(), token_secret.as_ref());
        let _player = if arguments.dev { dev::begin(&settings, &running, &arguments, places)? } else { None };
        if let Some(address) = running.tcp_address() {
            tracing::info!(%address, "lines over TCP");
        }
        if let Some(address) = running.internal_address() {
            tracing::info!(%address, "server API, metrics and probes");
        }
        if let Some(address) = running.grpc_address() {
            tracing::info!(%address, "server API over gRPC");
        }
        let connections = descriptors::connections(descriptors);
        let (address, version) = (running.address(), touchline_server::VERSION);
        tracing::info!(%address, version, descriptors, connections, "ready");
        let status = format!("serves at {address}, up to {connections} connections");
        service_manager::ready(&status).await;
        if let Some(ready) = &ready {
            ready.tell(&settings, &running)?;
        }
        let reloading = Arc::new(Notify::new());
        tokio::select! {
            () = signals.next(Some(&reloading)) => {}
            () = reload_when_told(running.handle(), &reloading) => {}
            () = ended(parent.as_ref()) => {}
            () = service_manager::keep_alive(running.handle()) => {}
        }
        service_manager::stopping(settings.shutdown.timeout, running.handle().drain_forecast()).await;
        tracing::info!("stopping; a second signal stops at once");
        Ok(stop(running, &mut signals).await)
    })
}

/// Where a key is written. `None` = it has its default, or the value that `--dev` sets.
fn place(written: &[WrittenKey], path: &str) -> Option<Location> {
    let is_it = |key: &&WrittenKey| key.path == path && key.location != Location::Defaults;
    written.iter().find(is_it).map(|key| key.location.clone())
}

fn sources(arguments: &ServeArguments) -> Result<Sources> {
    let variables = touchline_config::process_variables();
    let (file, variables) = if arguments.ephemeral {
        (arguments.config.clone(), ephemeral::variables(variables))
    } else {
        (named(arguments.config.as_deref()), variables)
    };
    let purpose = if arguments.ephemeral { DevelopmentPurpose::Tests } else { DevelopmentPurpose::Demo };
    let has_secrets = arguments.dev || arguments.ephemeral;
    let development = has_secrets.then(|| development_secrets(arguments.open_to_network, purpose));
    Ok(Sources {
        file,
        variables,
        flags: Flags {
            address: arguments.address,
            port: arguments.port,
            log_level: arguments.log_level.clone(),
            shards: arguments.shards,
            keys: arguments.keys.clone(),
        },
        development: development.transpose()?,
    })
}

/// Starts the server. `shows_demo`: whether it serves the pages of the live match. `source`: the sources that a reload
/// reads, and the keys that were set at the start. `None` = no reload.
fn start(
    settings: Settings,
    shows_demo: bool,
    source: Option<(ConfigurationSource, Vec<WrittenKey>)>,
) -> Result<Running> {
    let mut builder = Server::builder(settings);
    if let Some((source, written)) = source {
        builder = builder.settings_from(source, written);
    }
    if shows_demo {
        builder = builder.site(crate::demo::site());
    }
    builder.build().and_then(Server::start).map_err(explain)
}

/// Adds a remedy to errors that have a usual one.
fn explain(error: StartError) -> anyhow::Error {
    let remedy = match &error {
        StartError::Bind { key, address, source } => bind_remedy(key, address.port(), source.kind()),
        StartError::Database { database, source: OpenError::File { path, source } } => {
            let remedy = file_remedy(path, source.kind(), "give its directory to this account (chown)");
            Some(format!("the database (store.{database}.url) cannot be used: {remedy}"))
        }
        _ => None,
    };
    anyhow!(error).context(remedy.unwrap_or_else(|| "failed to start".to_owned()))
}

/// What to do if the port of `key` cannot be bound. `None` = there is no usual remedy.
fn bind_remedy(key: &str, port: u16, kind: io::ErrorKind) -> Option<String> {
    let other = if port == u16::MAX { 8000 } else { port.max(1023) + 1 };
    let is_main = key == "http_server.port";
    let choose = |port: u16| if is_main { format!("--port {port}") } else { format!("{key} = {port}") };
    match kind {
        io::ErrorKind::AddrInUse => Some(format!(
            "port {port} is taken: stop the process that has it (`ss -ltnp 'sport = :{port}'` shows it), \
             or choose another port, such as {}",
            choose(other)
        )),
        io::ErrorKind::PermissionDenied if port < 1024 => Some(format!(
            "port {port} needs a privilege: choose a port above 1023, such as {}, or grant the privilege \
             (systemd: AmbientCapabilities=CAP_NET_BIND_SERVICE)",
            choose(if is_main { 8000 } else { 9000 })
        )),
        io::ErrorKind::AddrNotAvailable => {
            let address = if is_main { "--address".to_owned() } else { key.replace("port", "address") };
            Some(format!("this machine has no such address: see `ip address`, or remove {address}"))
        }
        _ => None,
    }
}

/// The text for a file that cannot be used: what its path is relative to, which account was refused, and what to do.
fn file_remedy(path: &str, kind: io::ErrorKind, permit: &str) -> String {
    let directory = std::env::current_dir().map(|directory| directory.display().to_string()).unwrap_or_default();
    let directory_note = if Path::new(path).is_absolute() {
        String::new()
    } else {
        format!(" in {directory}, where the server was started")
    };
    let remedy =
        if directory_note.is_empty() { permit.to_owned() } else { format!("{permit}, or write an absolute path") };
    match kind {
        io::ErrorKind::PermissionDenied => {
            let account = std::fs::metadata("/proc/self")
                .map_or_else(|_| "this account".to_owned(), |me| format!("uid {}", me.uid()));
            format!("{path}{directory_note} cannot be accessed by {account}: {remedy}")
        }
        io::ErrorKind::NotFound => format!("{path}{directory_note} does not exist"),
        _ => format!("{path}{directory_note}"),
    }
}

/// The signals of the process: SIGTERM and SIGINT stop it, and SIGHUP reloads the configuration.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
}

impl Signals {
    fn listen() -> Result<Self> {
        let listen = |kind| signal(kind).context("failed to listen for signals");
        Ok(Signals {
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
            hang_up: listen(SignalKind::hangup())?,
        })
    }

    /// Waits for the next signal to stop. SIGHUP notifies `reloading`; `None` = the server is already stopping.
    async fn next(&mut self, reloading: Option<&Notify>) {
        loop {
            tokio::select! {
                _ = self.terminate.recv() => return,
                _ = self.interrupt.recv() => return,
                _ = self.hang_up.recv() => match reloading {
                    Some(reloading) => reloading.notify_one(),
                    None => tracing::info!("SIGHUP: the configuration is not reloaded, because the server is stopping"),
                },
            }
        }
    }
}

/// Reloads the server at each notification, one reload after the other. Never returns.
async fn reload_when_told(server: ServerHandle, told: &Notify) {
    loop {
        told.notified().await;
        service_manager::reloading().await;
        service_manager::ready(&reload(server.clone()).await).await;
    }
}

/// Reads the configuration again and applies it. Returns the outcome as one line.
async fn reload(server: ServerHandle) -> String {
    let (done, outcome) = tokio::sync::oneshot::channel();
    // A reload reads files and fetches keys. A process that stops does not wait for it.
    let work = move || drop(done.send(server.reload()));
    if let Err(error) = std::thread::Builder::new().name("reload".into()).spawn(work) {
        tracing::error!(%error, "SIGHUP: the system cannot start a thread");
        return format!("reload failed: {error}");
    }
    match outcome.await.unwrap_or(Err(ReloadRefusal::Stopping)) {
        Ok(Reloaded { changed, .. }) if changed.is_empty() => {
            tracing::info!("SIGHUP: no key of the configuration has changed");
            "reload: no key has changed".to_owned()
        }
        Ok(Reloaded { generation, changed }) => {
            format!("reload: generation {generation}, changed: {}", changed.join(", "))
        }
        Err(refusal) => {
            tracing::error!("SIGHUP: {refusal}");
            format!("reload failed: {refusal}")
        }
    }
}

/// Waits until the parent process has ended. Without a parent it waits for ever.
async fn ended(parent: Option<&Parent>) {
    match parent {
        Some(parent) => parent.ended().await,
        None => std::future::pending().await,
    }
}

/// Stops the server with a drain. A second signal ends the process at once.
async fn stop(running: Running, signals: &mut Signals) -> ExitCode {
    let (done, stopped) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        running.stop();
        let _ = done.send(());
    });
    tokio::select! {
        _ = stopped => {
            tracing::info!("stopped");
            ExitCode::SUCCESS
        }
        () = signals.next(None) => ExitCode::from(STOPPED_AT_ONCE),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_taken_port_is_told_with_its_remedy() {
        let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let mut settings = Settings::default();
        settings.http_server.address = "127.0.0.1".into();
        settings.http_server.port = taken.local_addr().expect("it is bound").port();
        let error = start(settings, false, None).err().expect("the port is taken");
        let text = format!("{error:#}");
        assert!(text.contains("is taken: stop the process that has it") && text.contains("--port"), "{text}");
    }

    #[test]
    fn a_remedy_names_the_key_of_its_own_port() {
        for (key, kind, expected) in [
            ("http_server.internal_port", io::ErrorKind::AddrInUse, "http_server.internal_port = 1024"),
            ("http_server.internal_port", io::ErrorKind::PermissionDenied, "http_server.internal_port = 9000"),
            ("tcp.port", io::ErrorKind::AddrNotAvailable, "remove tcp.address"),
            ("http_server.port", io::ErrorKind::PermissionDenied, "--port 8000"),
        ] {
            let text = bind_remedy(key, 81, kind).expect("there is one");
            assert!(text.contains(expected), "{text}");
        }
    }
}
