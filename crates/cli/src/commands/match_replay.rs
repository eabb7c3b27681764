//! `touchline match`: publishes a recorded match through the server API, as a reporter would.

use std::process::ExitCode;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use serde_json::{Value as Json, json};

use crate::arguments::MatchArguments;
use crate::client::api::ApiClient;
use crate::demo;

/// Pause between the end of a match and the next kick-off.
const PAUSE_BETWEEN_MATCHES: Duration = Duration::from_secs(15);
/// Pause after an error of the server, before the match starts again.
const PAUSE_AFTER_FAULT: Duration = Duration::from_secs(5);

/// Plays the recording as the arguments say.
pub(crate) fn run(arguments: &MatchArguments) -> Result<ExitCode> {
    let recording = match &arguments.replay {
        Some(path) => {
            let text = std::fs::read_to_string(path).with_context(|| format!("failed to read {}", path.display()))?;
            Recording::parse(&text).with_context(|| format!("{} is not a recorded match", path.display()))?
        }
        None => Recording::parse(demo::RECORDING)?,
    };
    let api = ApiClient::from_arguments(&arguments.api)?;
    let (_never, stop) = channel();
    loop {
        eprintln!(
            "touchline: playing {} events in {:.0?}",
            recording.events.len(),
            recording.length().div_f64(arguments.speed)
        );
        recording.play(&api, &arguments.channel, arguments.speed, &stop, |_| ())?;
        if !arguments.again {
            return Ok(ExitCode::SUCCESS);
        }
        std::thread::sleep(PAUSE_BETWEEN_MATCHES);
    }
}

/// A recorded match: events and their times.
pub(crate) struct Recording {
    events: Vec<(Duration, Json)>,
}

impl Recording {
    /// Parses `{"events": [{"at": seconds since the recording began, "data": publication}, …]}`.
    ///
    /// # Errors
    /// When the text has another form, or an event is earlier than the one before it.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let mut recording: Json = serde_json::from_str(text).context("it is not JSON")?;
        let Json::Array(written) = recording["events"].take() else { bail!("it has no list of events") };
        let mut events = Vec::with_capacity(written.len());
        let mut last = Duration::ZERO;
        for (index, mut event) in written.into_iter().enumerate() {
            let at = event["at"].as_f64().and_then(|at| Duration::try_from_secs_f64(at).ok());
            let at = at.filter(|at| *at >= last).with_context(|| format!("event {index} has no good time \"at\""))?;
            let data = event["data"].take();
            if data.is_null() {
                bail!("event {index} has no \"data\"");
            }
            last = at;
            events.push((at, data));
        }
        if events.is_empty() {
            bail!("it has no events");
        }
        Ok(Recording { events })
    }

    fn length(&self) -> Duration {
        self.events.last().map_or(Duration::ZERO, |(at, _)| *at)
    }

    /// Removes the history of the channel, then publishes each event at its time and passes it to `posted`. Ends early
    /// when the other end of `stop` is dropped.
    fn play(
        &self,
        api: &ApiClient,
        channel: &str,
        speed: f64,
        stop: &Receiver<()>,
        posted: impl Fn(&Json),
    ) -> Result<()> {
        api.call("history_remove", &json!({"channel": channel})).context("failed to remove the history")?;
        let began = Instant::now();
        for (at, data) in &self.events {
            let due = began + at.div_f64(speed);
            if !waits(due.saturating_duration_since(Instant::now()), stop) {
                return Ok(());
            }
            api.call("publish", &json!({"channel": channel, "data": data})).context("failed to publish")?;
            posted(data);
        }
        Ok(())
    }
}

/// Waits for a pause. Returns `false` if the player was dropped meanwhile.
fn waits(pause: Duration, stop: &Receiver<()>) -> bool {
    matches!(stop.recv_timeout(pause), Err(RecvTimeoutError::Timeout))
}

/// The reaction of the demo's crowd to an event, and the number of taps. The crowd supports the home team. `None` = it
/// does not react.
fn reaction_to(event: &Json) -> Option<(&'static str, u32)> {
    match (event["type"].as_str()?, event["team"].as_str()) {
        ("goal", Some("home")) => Some(("applause", 60)),
        ("goal", _) => Some(("boo", 30)),
        ("card", Some("away")) => Some(("applause", 15)),
        ("card", _) => Some(("boo", 25)),
        ("kick_off" | "second_half" | "full_time", _) => Some(("applause", 20)),
        _ => None,
    }
}

/// A match that plays again and again on its own thread, until this value is dropped.
pub(crate) struct Player {
    _stop: Sender<()>,
}

impl Player {
    /// Starts the match.
    ///
    /// # Errors
    /// When the system cannot start a thread.
    pub(crate) fn start(api: ApiClient, channel_name: String, recording: Recording, speed: f64) -> Result<Self> {
        let (stop, stopped) = channel();
        let play = move || {
            let react = |event: &Json| {
                let Some((option, n)) = reaction_to(event) else { return };
                let request = json!({"channel": channel_name, "option": option, "n": n});
                // Reactions may be closed, and a namespace of the user may have none.
                if let Err(error) = api.call("reactions_add", &request) {
                    tracing::debug!("the reactions of the crowd were not counted: {error:#}");
                }
            };
            loop {
                let pause = match recording.play(&api, &channel_name, speed, &stopped, react) {
                    Ok(()) => PAUSE_BETWEEN_MATCHES,
                    Err(error) => {
                        tracing::debug!("the match stopped: {error:#}");
                        PAUSE_AFTER_FAULT
                    }
                };
                if !waits(pause, &stopped) {
                    break;
                }
            }
        };
        std::thread::Builder::new().name("match".into()).spawn(play).context("failed to start the match")?;
        Ok(Player { _stop: stop })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recording_is_events_in_order() {
        let good = Recording::parse(r#"{"events": [{"at": 0, "data": 1}, {"at": 2.5, "data": {"type": "goal"}}]}"#)
            .expect("it is one");
        assert_eq!(good.length(), Duration::from_millis(2_500));
        for bad in [
            "",
            "{}",
            r#"{"events": []}"#,
            r#"{"events": [{"data": 1}]}"#,
            r#"{"events": [{"at": -1, "data": 1}]}"#,
            r#"{"events": [{"at": 1}]}"#,
        ] {
            assert!(Recording::parse(bad).is_err(), "{bad}");
        }
        assert!(Recording::parse(r#"{"events": [{"at": 2, "data": 1}, {"at": 1, "data": 2}]}"#).is_err());
    }

    #[test]
    fn the_crowd_reacts_to_what_moves_it() {
        assert_eq!(reaction_to(&json!({"type": "goal", "team": "home"})), Some(("applause", 60)));
        assert_eq!(reaction_to(&json!({"type": "goal", "team": "away"})), Some(("boo", 30)));
        assert_eq!(reaction_to(&json!({"type": "text", "text": "goal"})), None);
        assert_eq!(reaction_to(&json!(1)), None);
    }

    #[test]
    fn a_wait_ends_when_its_player_is_dropped() {
        let (stop, stopped) = channel();
        assert!(waits(Duration::from_millis(1), &stopped));
        drop(stop);
        assert!(!waits(Duration::from_secs(60), &stopped));
    }
}
