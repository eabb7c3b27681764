//! Checks the header fields that a node sends to the backend of a hook: which list may name which field.

use touchline_engine::hook::ProxySettings;

/// Fields that belong to the connection to the backend, or to the message itself (RFC 9110 section 7.6.1).
const OF_CONNECTION: [&str; 12] = [
    "connection",
    "content-length",
    "content-type",
    "expect",
    "host",
    "keep-alive",
    "proxy-authenticate",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// What is wrong with the header fields for a backend, one text for each fault. `section` is the backend's section in
/// the configuration, and `allowed_origins` is `client.allowed_origins`.
pub fn header_faults(section: &str, proxy: &ProxySettings, allowed_origins: &[String]) -> Vec<String> {
    let is_grpc = proxy.grpc_target().is_some();
    let statics = statics_of(proxy);
    let lists: [(&str, Vec<&String>); 2] = [
        ("http_headers", proxy.http_headers.iter().collect()),
        ("emulated_headers", proxy.emulated_headers.iter().collect()),
    ];
    let mut faults = Vec::new();
    for (key, name) in statics.iter().filter(|(_, name)| is_of_connection(name)) {
        faults.push(of_connection(section, key, name));
    }
    for (index, (key, name)) in statics.iter().enumerate() {
        if statics[..index].iter().any(|(_, known)| known.eq_ignore_ascii_case(name)) {
            faults.push(format!("{section}.{key}: {name:?} already has another value: name it once"));
        }
    }
    for (key, names) in &lists {
        for name in names {
            if is_of_connection(name) {
                faults.push(of_connection(section, key, name));
            }
            if let Some((fixed, _)) = statics.iter().find(|(_, known)| known.eq_ignore_ascii_case(name)) {
                faults.push(format!(
                    "{section}.{key}: {name:?} is also in {section}.{fixed}, so a client could replace the configured \
                     value: name it once"
                ));
            }
            if is_grpc && is_of_grpc(name) {
                faults.push(format!("{section}.{key}: {name:?} cannot be a text in gRPC metadata: remove it"));
            }
        }
    }
    let passes_cookies = proxy.http_headers.iter().any(|name| name.eq_ignore_ascii_case("cookie"));
    if passes_cookies && allowed_origins.iter().any(|origin| origin == "*") {
        faults.push(format!(
            "{section}.http_headers: \"Cookie\" is forwarded and client.allowed_origins has \"*\", so any web page \
             could connect as the user who opens it: name the origins of your own pages"
        ));
    }
    faults
}

/// The names of the fields with configured values, each with its key.
fn statics_of(proxy: &ProxySettings) -> Vec<(&'static str, &String)> {
    if proxy.grpc_target().is_none() {
        return proxy.http.static_headers.0.keys().map(|name| ("http.static_headers", name)).collect();
    }
    let metadata = proxy.grpc.static_metadata.0.keys().map(|name| ("grpc.static_metadata", name));
    let credentials = Some(&proxy.grpc.credentials_key).filter(|name| !name.is_empty());
    metadata.chain(credentials.map(|name| ("grpc.credentials_key", name))).collect()
}

pub(super) fn is_of_connection(name: &str) -> bool {
    OF_CONNECTION.contains(&name.to_ascii_lowercase().as_str())
}

/// Whether gRPC reserves the name, or prescribes the format of its value.
fn is_of_grpc(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    name.starts_with("grpc-") || name.ends_with("-bin")
}

fn of_connection(section: &str, key: &str, name: &str) -> String {
    format!("{section}.{key}: {name:?} belongs to the connection to the backend: remove it")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(http: &[&str], emulated: &[&str], statics: &[&str], origins: &[&str]) -> usize {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let mut proxy = ProxySettings::default();
        (proxy.http_headers, proxy.emulated_headers) = (owned(http), owned(emulated));
        proxy.http.static_headers.0 = statics.iter().map(|name| ((*name).to_owned(), "x".to_owned())).collect();
        header_faults("rpc.proxy", &proxy, &owned(origins)).len()
    }

    #[test]
    fn a_list_names_no_field_of_the_connection_and_no_static_field() {
        for name in OF_CONNECTION {
            let upper = name.to_ascii_uppercase();
            for name in [name, &upper] {
                assert_eq!(faults(&[name], &[], &[], &[]), 1, "{name}");
                assert_eq!(faults(&[], &[name], &[], &[]), 1, "{name}");
                assert_eq!(faults(&[], &[], &[name], &[]), 1, "{name}");
            }
        }
        assert_eq!(faults(&["x-key"], &[], &["X-Key"], &[]), 1);
        assert_eq!(faults(&[], &["x-key"], &["X-Key"], &[]), 1);
        assert_eq!(faults(&["X-Both", "Cookie"], &["X-Both", "Authorization"], &["X-Key"], &[]), 0);
    }

    #[test]
    fn no_client_replaces_what_a_backend_of_grpc_is_told_by_the_configuration() {
        let faults = |name: &str| {
            let mut proxy = ProxySettings { endpoint: "grpc://backend:9000".to_owned(), ..ProxySettings::default() };
            proxy.grpc.credentials_key = "authorization".to_owned();
            proxy.grpc.static_metadata.0 = [("X-Node".to_owned(), "a".to_owned())].into();
            proxy.emulated_headers = vec![name.to_owned()];
            let emulated = header_faults("rpc.proxy", &proxy, &[]).len();
            proxy.http_headers = std::mem::take(&mut proxy.emulated_headers);
            (emulated, header_faults("rpc.proxy", &proxy, &[]).len())
        };
        for name in ["Authorization", "x-node", "x-data-bin", "GRPC-Timeout", "host"] {
            assert_eq!(faults(name), (1, 1), "{name}");
        }
        assert_eq!(faults("x-user"), (0, 0));
    }

    #[test]
    fn cookies_are_passed_on_for_named_origins_only() {
        assert_eq!(faults(&["cookie"], &[], &[], &["https://app.example", "*"]), 1);
        assert_eq!(faults(&["cookie"], &[], &[], &["https://app.example", "https://*.app.example"]), 0);
        assert_eq!(faults(&[], &["Cookie"], &[], &["*"]), 0, "a page cannot claim the cookie of its visitor");
    }
}
