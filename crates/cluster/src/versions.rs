//! What an acknowledgement guarantees depends on NATS: on its version, its configuration, and the number of servers. As
//! far as this is visible, it is logged at the start.

use crate::settings::{JoinOptions, Storage};

/// Warns of losses that the settings alone can cause.
pub(crate) fn warn_of_losses(settings: &JoinOptions) {
    if settings.streams.is_empty() {
        return;
    }
    if settings.storage() == Storage::Memory {
        tracing::warn!("cluster.stream_storage is memory: history is lost when the NATS servers stop");
    } else if settings.cluster.stream_replicas < 3 {
        tracing::warn!(
            "cluster.stream_replicas is below 3: history can't be reached while its NATS server is away, and what was \
             acknowledged last is lost with the power unless that server runs with sync_interval: always"
        );
    }
}

/// Logs what the version of the NATS server means for channels with history.
pub(crate) fn say_what_nats_keeps(settings: &JoinOptions, version: &str) {
    if settings.streams.is_empty() {
        return;
    }
    match what_is_kept(settings, version) {
        Ok(row) => tracing::info!(version, "NATS: an acknowledged publication is {row}"),
        Err(warning) => tracing::warn!(version, "NATS: {warning}"),
    }
}

/// The row of the table in docs/guides/cluster.md that applies. An error is a text for a warning.
fn what_is_kept(settings: &JoinOptions, version: &str) -> Result<&'static str, &'static str> {
    let mut numbers = version.split(['.', '-']).map_while(|word| word.parse::<u32>().ok());
    let (Some(major), Some(minor)) = (numbers.next(), numbers.next()) else {
        return Err("its version is unreadable, so it is unknown what it keeps; version 2.10.27 was tested");
    };
    if (major, minor) < (2, 9) {
        return Err("version 2.9 or later is needed for streams with direct gets and republishing");
    }
    let is_replicated = settings.cluster.stream_replicas >= 3;
    if (major, minor) < (2, 10) && is_replicated {
        return Err(
            "versions before 2.10 lose acknowledged messages of replicated streams when the leader's server is \
             killed: use 2.10.27 or newer",
        );
    }
    Ok(match (settings.storage(), is_replicated) {
        (Storage::Memory, false) => "lost with its NATS server",
        (Storage::Memory, true) => "kept while a majority of its NATS servers runs",
        (Storage::File, false) => "kept when its NATS server is killed, and away until that is back",
        (Storage::File, true) => "kept when a NATS server is killed",
    })
}

#[cfg(test)]
mod tests {
    use touchline_config::ClusterSettings;

    use super::*;

    #[test]
    fn what_a_version_of_nats_keeps_is_said() {
        let settings = |storage: &str, stream_replicas| {
            let cluster = ClusterSettings { stream_storage: storage.into(), stream_replicas, ..Default::default() };
            JoinOptions { cluster, ..JoinOptions::default() }
        };
        let file_of_three = settings("file", 3);
        assert!(what_is_kept(&file_of_three, "2.9.10").is_err_and(|warning| warning.contains("lose acknowledged")));
        assert!(what_is_kept(&settings("file", 1), "2.9.10").is_ok(), "one server is led by nobody else");
        for version in ["2.10.27", "2.12.1", "2.14.0-RC.1", "3.0.0"] {
            assert_eq!(what_is_kept(&file_of_three, version), Ok("kept when a NATS server is killed"), "{version}");
        }
        for version in ["2.8.4", "1.4.1", "", "unknown"] {
            assert!(what_is_kept(&settings("memory", 1), version).is_err(), "{version}");
        }
    }
}
