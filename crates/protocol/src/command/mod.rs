//! Commands of a client. Unknown fields are ignored, and JSON `null` means absence, as in the official server.

mod json;
mod nullable;
mod protobuf;
mod reader;
#[cfg(test)]
mod tests;
mod types;

pub use reader::Commands;
pub use types::{
    ChannelCommand, Command, CommandKind, ConnectCommand, FLAG_REJECT_UNRECOVERED, HistoryCommand, PublishCommand,
    RefreshCommand, RpcCommand, SendCommand, Since, SubRefreshCommand, SubscribeCommand,
};
