//! stub
use std::time::Duration;
use crate::http_client::Url;
pub(super) enum Incoming { Text(String), Closed(u32, String) }
pub(super) enum ConnectError { Refused(String), Lost(String) }
pub(super) struct Socket;
impl Socket {
    pub(super) fn connect(_: &Url) -> Result<Self, ConnectError> { Ok(Socket) }
    pub(super) fn send(&mut self, _: &str) -> anyhow::Result<()> { Ok(()) }
    pub(super) fn next(&mut self) -> anyhow::Result<Incoming> { Ok(Incoming::Text(String::new())) }
    pub(super) fn expect_within(&mut self, _: Option<Duration>) -> anyhow::Result<()> { Ok(()) }
}
