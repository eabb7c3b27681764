//! A server inside another program: `cargo run --example embed -p touchline-server`, then open a WebSocket to
//! `/connection/websocket`.

use touchline_server::{ChannelOptions, Namespace, Server, Settings};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut settings = Settings::default();
    settings.http_api.key = "key".into();
    settings.client.token.hmac_secret_key = "secret".into();
    settings.client.allow_anonymous_connect_without_token = true;
    settings.client.allowed_origins = vec!["*".into()];
    settings.health.enabled = true;
    settings.prometheus.enabled = true;
    let open =
        ChannelOptions { allow_subscribe_for_client: true, allow_subscribe_for_anonymous: true, ..Default::default() };
    settings.channel.without_namespace = open.clone();
    let options = ChannelOptions {
        history_size: 100,
        history_ttl: std::time::Duration::from_secs(600),
        force_recovery: true,
        presence: true,
        join_leave: true,
        force_push_join_leave: true,
        allow_presence_for_client: true,
        allow_presence_for_anonymous: true,
        allow_history_for_client: true,
        allow_history_for_anonymous: true,
        allow_publish_for_client: true,
        allow_publish_for_anonymous: true,
        ..open
    };
    settings.channel.namespaces.push(Namespace { name: "h".into(), options });
    let running = Server::bind(settings)?.start()?;
    println!("listening on {}; press Enter to stop", running.address());
    std::io::stdin().read_line(&mut String::new())?;
    running.stop();
    Ok(())
}
