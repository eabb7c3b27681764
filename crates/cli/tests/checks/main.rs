//! The commands that check a configuration, a machine or a server, and the messages to a service manager.

mod connections;
mod place;
mod printed;
mod service;

use place::{Place, text};

#[test]
fn the_machine_is_described_without_a_configuration() {
    let place = Place::new("");
    let output = place.run_bare(&["check", "--machine"]);
    let said = text(&output.stdout);
    assert!(output.status.success(), "{said}");
    for limit in ["open files of a process", "waiting connections", "memory that is available", "processors", "time"] {
        assert!(said.contains(limit), "{limit} is not in: {said}");
    }
    // If the process may open few files, the check names the setting that allows more.
    let script = format!("ulimit -n 256; exec {} check --machine", env!("CARGO_BIN_EXE_touchline"));
    let output = std::process::Command::new("sh").args(["-c", &script]).output().expect("sh runs");
    let said = text(&output.stdout);
    assert!(said.contains("low  open files of a process: 256: ") && said.contains("LimitNOFILE=1048576"), "{said}");
}

#[test]
fn a_configuration_of_variables_only_is_checked_too() {
    let check = |variables: &[(&str, &str)]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_touchline"));
        command.arg("check").env_clear().envs(variables.iter().copied()).output().expect("the binary runs")
    };
    let nothing = check(&[]);
    assert!(text(&nothing.stderr).contains("no configuration: name the file") && !nothing.status.success());
    let secret = ("TOUCHLINE_CLIENT_TOKEN_HMAC_SECRET_KEY", "a secret that is long enough to be one");
    assert!(check(&[secret, ("TOUCHLINE_HTTP_API_KEY", "another long secret")]).status.success());
    let wrong = check(&[secret, ("TOUCHLINE_HTTP_SERVER_PORT", "eighty")]);
    assert!(text(&wrong.stdout).contains("TOUCHLINE_HTTP_SERVER_PORT"), "{}", text(&wrong.stdout));
}

#[test]
fn health_asks_the_port_that_has_the_probes() {
    let place = Place::new("health.enabled = true\nhttp_server.internal_port = 0\n");
    let server = place.serve();
    let address = server.address("server API, metrics and probes");
    let output = place.run(&["health", "--api", &format!("http://{address}")]);
    assert!(output.status.success() && text(&output.stdout).trim() == "{}", "{}", text(&output.stderr));
    let public = server.address("ready");
    let output = place.run(&["health", "--api", &format!("http://{public}")]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("has no probes"), "{}", text(&output.stderr));
    drop(server);
    let output = place.run(&["health", "--api", &format!("http://{address}"), "--timeout", "1s"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("failed to connect"), "{}", text(&output.stderr));
    place.write("touchline.toml", "http_server.port = 1\n");
    assert!(text(&place.run(&["health"]).stderr).contains("health.enabled is off"));
}

#[test]
fn health_speaks_tls_to_a_certificate_of_another_name() {
    let place = Place::new("health.enabled = true\n[http_server.tls]\nenabled = true\n");
    place.certificate(90);
    let server = place.serve();
    let address = server.address("ready");
    let output = place.run(&["health", "--api", &format!("https://{address}")]);
    assert!(output.status.success(), "{}", text(&output.stderr));
}
