//! Tries to reach what a configuration names: databases, NATS, backends, key sets, certificates. It changes nothing,
//! and no node runs.

use std::time::{SystemTime, UNIX_EPOCH};

use tokio::runtime::Builder;
use touchline_config::Settings;
use touchline_store::migrate::{Database, PRIMARY, STATS};
use touchline_store::{DatabaseUrl, OpenError, Schema};

use crate::api::operations_named;
use crate::auth::{ApiAccess, KeySets, TokenVerifier, fetch_once};
use crate::backend::nats;
use crate::hooks::Endpoints;
use crate::start_error::StartError;
use crate::tls::{self, read_pem};
use crate::{consumers, events};

/// A certificate that ends within this many days is a fault.
const CERTIFICATE_DAYS_MIN: u64 = 7;
const DAY_S: u64 = 86_400;

/// One thing that was tried, and the result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectionTrial {
    /// The configuration key that names it.
    pub key: String,
    /// What it is, for example an address; without passwords.
    pub target: String,
    /// What was found, or what is wrong.
    pub outcome: Result<String, String>,
}

impl ConnectionTrial {
    fn new(key: impl Into<String>, target: impl Into<String>, outcome: Result<String, String>) -> Self {
        ConnectionTrial { key: key.into(), target: target.into(), outcome }
    }
}

/// Tries everything that these settings name, each for a limited time.
///
/// # Errors
/// When the settings cannot be used ([`crate::check`] lists all faults), or when the system refuses a thread.
pub fn try_connections(settings: &Settings) -> Result<Vec<ConnectionTrial>, StartError> {
    let of_system = |source| StartError::System { what: "a thread", source };
    let mut trials = certificates(settings);
    trials.extend(databases(settings));
    let joining = settings.cluster.is_on().then(|| nats::joining(settings, "check", 0, Vec::new())).transpose()?;
    let consumers = consumers::prepare(settings)?;
    let names = settings.consumers.iter().filter(|consumer| consumer.options.enabled).map(|consumer| &consumer.name);
    let endpoints = events::endpoints(settings)?;
    let runtime = Builder::new_current_thread().enable_all().build().map_err(of_system)?;
    trials.extend(runtime.block_on(async {
        let hooks = Endpoints::new(settings, None).map_err(StartError::hook)?;
        let mut trials = Vec::new();
        if let Some(joining) = &joining {
            let target = settings.cluster.nats_url.iter().map(|url| without_user(url)).collect::<Vec<_>>().join(", ");
            let outcome = touchline_cluster::try_connection(joining).await;
            trials.push(ConnectionTrial::new("cluster.nats_url", target, outcome));
        }
        for (name, consumer) in names.zip(&consumers) {
            let (target, outcome) = consumer.try_connection().await;
            trials.push(ConnectionTrial::new(format!("consumers[{name}]"), target, outcome));
        }
        for hook in &hooks.all {
            let (key, outcome) = (format!("{}.endpoint", hook.name), hook.try_connection().await);
            trials.push(ConnectionTrial::new(key, hook.shown_address(), outcome));
        }
        for endpoint in &endpoints {
            if let Some((name, address, outcome)) = endpoint.try_connection().await {
                trials.push(ConnectionTrial::new(format!("events[{name}]"), address, outcome));
            }
        }
        Ok::<_, StartError>(trials)
    })?);
    // The runtime would otherwise wait for a name that is still being resolved.
    runtime.shutdown_background();
    trials.extend(key_sets(settings)?);
    Ok(trials)
}

/// Until when the certificates of the ports are valid; of a chain, the one that ends first.
fn certificates(settings: &Settings) -> Vec<ConnectionTrial> {
    // real time: a trial before a node runs.
    let now_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
    let trials = tls::validities(settings).into_iter().map(|(section, end)| {
        let outcome = match end {
            Ok((_, end_s)) if end_s <= now_s => Err(format!("expired {} days ago: renew it", (now_s - end_s) / DAY_S)),
            Ok((begin_s, _)) if begin_s > now_s => {
                Err(format!("not valid yet, for {} hours more: compare the clock", (begin_s - now_s) / 3_600 + 1))
            }
            Ok((_, end_s)) => match (end_s - now_s) / DAY_S {
                days if days < CERTIFICATE_DAYS_MIN => Err(format!("valid for {days} days more: renew it")),
                days => Ok(format!("valid for {days} days more")),
            },
            Err(error) => Err(error.to_string()),
        };
        ConnectionTrial::new(format!("{section}.cert_pem"), "the certificate", outcome)
    });
    trials.collect()
}

/// The databases that are used, and the state of their schemas.
fn databases(settings: &Settings) -> Vec<ConnectionTrial> {
    let store = &settings.store;
    let used: [(&'static Database, _, _, _); 2] = [
        (&PRIMARY, &store.primary.url, &store.primary.tls_ca, settings.needs_primary()),
        (&STATS, &store.stats.url, &store.stats.tls_ca, store.stats.enabled),
    ];
    let used = used.into_iter().filter(|(.., is_used)| *is_used);
    used.map(|(database, url, tls_ca, _)| {
        let key = format!("store.{}.url", database.name);
        let target = if url.starts_with("sqlite:") { url.clone() } else { "the database".to_owned() };
        ConnectionTrial::new(key, target, schema(database, url, tls_ca))
    })
    .collect()
}

/// Describes the schema of a database.
fn schema(database: &'static Database, url: &str, tls_ca: &str) -> Result<String, String> {
    let open = || -> Result<(u32, u32), StartError> {
        let failed = |source: OpenError| StartError::Database { database: database.name, source };
        let wrong = |source| StartError::DatabaseAddress { database: database.name, source };
        let url: DatabaseUrl = url.parse().map_err(wrong)?;
        url.inspect().map_err(failed)?;
        let tls_ca = read_pem(&format!("store.{}.tls_ca", database.name), tls_ca)?;
        let schema = Schema::inspect(database, &url, &tls_ca).map_err(failed)?;
        let newest = schema.migrations().last().map_or(0, |last| last.version);
        Ok((schema.version().map_err(failed)?, newest))
    };
    match open() {
        Ok((found, newest)) if found > newest => {
            Err(format!("schema {found}, made by a newer program: this one knows {newest}"))
        }
        Ok((found, newest)) if found < newest => {
            Ok(format!("schema {found} of {newest}: a start brings it up to date, where `migrate` is on"))
        }
        Ok((found, _)) => Ok(format!("schema {found}, up to date")),
        Err(error) => Err(causes(&error)),
    }
}

/// Fetches each key set of the issuers once.
fn key_sets(settings: &Settings) -> Result<Vec<ConnectionTrial>, StartError> {
    let mut sets = KeySets::default();
    TokenVerifier::new(&settings.client, &mut sets)?;
    ApiAccess::new(&settings.http_api, operations_named, &mut sets)?;
    let faults = fetch_once(&sets).map_err(|source| StartError::System { what: "a thread", source })?;
    let trials = sets.iter().map(|set| {
        let fault = faults.iter().find(|(section, _)| *section == set.section).map(|(_, fault)| fault.clone());
        let outcome = fault.map_or_else(|| Ok("the keys were fetched".to_owned()), Err);
        ConnectionTrial::new(set.section.clone(), "a set of keys", outcome)
    });
    Ok(trials.collect())
}

/// Returns an address without user, password and token.
fn without_user(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("nats", url));
    format!("{scheme}://{}", rest.rsplit_once('@').map_or(rest, |(_, host)| host))
}

/// Joins an error and its causes into one text. A cause that the text already has is not repeated.
fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(error) = next {
        let cause = error.to_string();
        if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
        next = error.source();
    }
    text
}
