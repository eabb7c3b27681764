//! A program that embeds the server: it decides which clients connect, names the author of each message,
//! and publishes by itself.

use serde_json::json;
use touchline_server::{HookAnswer, HookCall, HookClient, HookFuture, HookHandler, HookRequest, Server, Settings};

struct Chat;

impl HookHandler for Chat {
    fn answer(&self, _: HookClient, call: HookCall) -> HookFuture {
        Box::pin(async move {
            match call.request {
                HookRequest::Connect { data: Some(name), .. } => {
                    HookAnswer::result(json!({ "user": serde_json::from_slice::<String>(&name).unwrap_or_default() }))
                }
                HookRequest::Connect { .. } => HookAnswer::disconnect(4501, "say your name"),
                HookRequest::Publish { data, .. } => {
                    let text: serde_json::Value = serde_json::from_slice(&data).unwrap_or_default();
                    HookAnswer::result(json!({ "data": { "from": *call.user, "text": text } }))
                }
                _ => HookAnswer::empty(),
            }
        })
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut settings = Settings::default();
    settings.http_server.address = "127.0.0.1".into();
    settings.http_server.port = std::env::args().nth(1).map_or(Ok(8000), |port| port.parse())?;
    settings.client.proxy.connect.enabled = true;
    settings.channel.without_namespace.subscribe_proxy_enabled = true;
    settings.channel.without_namespace.publish_proxy_enabled = true;
    let server = Server::builder(settings).hooks(Chat).build()?.start()?;
    println!("ws://{}/connection/websocket", server.address());
    // Each line of its input is published, until the input ends.
    for line in std::io::stdin().lines() {
        server.publish("room", &json!({ "from": "the house", "text": line? })).await?;
    }
    server.stop();
    Ok(())
}
