//! Checks whether NATS can be used with the settings of a node. It makes one connection and writes nothing.

use std::time::Duration;

use async_nats::jetstream::ErrorCode;
use async_nats::jetstream::context::GetStreamErrorKind;
use async_nats::{Client, ConnectOptions, ServerAddr};

use crate::errors::JoinError;
use crate::options;
use crate::settings::JoinOptions;

/// The time limit of one check. The client tries each address for 3 seconds.
const TRIAL_TIMEOUT: Duration = Duration::from_secs(10);

/// The name of a stream that does not exist.
const NO_STREAM: &str = "touchline_check_of_jetstream";

/// Connects once. Returns a description of the server.
///
/// # Errors
/// Fails if the settings cannot be used, no server answers, or the server refuses the node. It also fails if the
/// history of a namespace is kept in JetStream and the server does not have it, or cannot replicate its streams. The
/// text contains no password.
pub async fn try_connection(settings: &JoinOptions) -> Result<String, String> {
    let needs_streams = !settings.streams.is_empty();
    let (servers, options) = options::trial(settings).map_err(|error: JoinError| error.to_string())?;
    let client = connect(servers, options).await?;
    let server = say(&client, needs_streams).await?;
    let replicas = settings.cluster.stream_replicas;
    if needs_streams && replicas > 1 && client.server_info().cluster.is_none() {
        return Err(format!(
            "{server}, and this server is not part of a cluster, so a stream cannot have {replicas} replicas: {}",
            crate::errors::TOO_MANY_REPLICAS
        ));
    }
    Ok(server)
}

/// Connects once within the time limit.
pub(crate) async fn connect(servers: Vec<ServerAddr>, options: ConnectOptions) -> Result<Client, String> {
    match tokio::time::timeout(TRIAL_TIMEOUT, options.connect(servers)).await {
        Ok(connected) => connected.map_err(|error| error.to_string()),
        Err(_) => Err(format!("no answer within {} s", TRIAL_TIMEOUT.as_secs())),
    }
}

/// Describes the server for people.
pub(crate) async fn say(client: &Client, needs_streams: bool) -> Result<String, String> {
    let info = client.server_info();
    let server = format!("NATS {}, messages of at most {} bytes", info.version, info.max_payload);
    if !needs_streams {
        return Ok(server);
    }
    // The answer about an account differs between versions of NATS, but all versions report that a stream does not
    // exist.
    let streams = async_nats::jetstream::new(client.clone());
    match tokio::time::timeout(TRIAL_TIMEOUT, streams.get_stream(NO_STREAM)).await {
        Ok(Ok(_)) => Ok(format!("{server}, with JetStream")),
        Ok(Err(error)) => match error.kind() {
            GetStreamErrorKind::JetStream(fault) if fault.error_code() == ErrorCode::STREAM_NOT_FOUND => {
                Ok(format!("{server}, with JetStream"))
            }
            _ => Err(format!("{server}, and JetStream can't be used: {error}")),
        },
        Err(_) => Err(format!("{server}, and JetStream does not answer")),
    }
}
