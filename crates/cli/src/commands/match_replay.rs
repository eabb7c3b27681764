//! stub
use crate::{api::Api, arguments::MatchArguments};
pub(crate) struct Recording;
impl Recording { pub(crate) fn parse(_: &str) -> anyhow::Result<Self> { Ok(Recording) } }
pub(crate) struct Player;
impl Player { pub(crate) fn start(_: Api, _: String, _: Recording, _: f64) -> anyhow::Result<Self> { Ok(Player) } }
pub(crate) fn run(_: &MatchArguments) -> anyhow::Result<std::process::ExitCode> { anyhow::bail!("later") }
