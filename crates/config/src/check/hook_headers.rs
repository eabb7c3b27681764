//! The header fields that the backend of a hook is sent: which lists may name which.

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

/// What is wrong with the header fields that a backend is to be sent. `section`: its section in the configuration;
/// `allowed_origins`: `client.allowed_origins`.
pub fn header_faults(section: &str, proxy: &ProxySettings, allowed_origins: &[String]) -> Vec<String> {
    let statics: Vec<&String> = proxy.http.static_headers.0.keys().collect();
    let lists = [
        ("http_headers", proxy.http_headers.iter().collect()),
        ("emulated_headers", proxy.emulated_headers.iter().collect()),
        ("http.static_headers", statics.clone()),
    ];
    let mut faults = Vec::new();
    for (key, names) in &lists {
        for name in names.iter().filter(|name| OF_CONNECTION.contains(&name.to_ascii_lowercase().as_str())) {
            faults.push(format!("{section}.{key}: {name:?} belongs to the connection to the backend: leave it out"));
        }
    }
    for (key, names) in &lists[..2] {
        for name in names.iter().filter(|name| statics.iter().any(|known| known.eq_ignore_ascii_case(name))) {
            faults.push(format!(
                "{section}.{key}: {name:?} is in {section}.http.static_headers too, so a client could replace the \
                 value that is written there: name it once"
            ));
        }
    }
    let passes_cookies = proxy.http_headers.iter().any(|name| name.eq_ignore_ascii_case("cookie"));
    if passes_cookies && allowed_origins.iter().any(|origin| origin == "*") {
        faults.push(format!(
            "{section}.http_headers: \"Cookie\" is passed on, and client.allowed_origins has \"*\", so the page of \
             anybody could connect as its visitor: name the origins of your own pages"
        ));
    }
    faults
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
    fn cookies_are_passed_on_for_named_origins_only() {
        assert_eq!(faults(&["cookie"], &[], &[], &["https://app.example", "*"]), 1);
        assert_eq!(faults(&["cookie"], &[], &[], &["https://app.example", "https://*.app.example"]), 0);
        assert_eq!(faults(&[], &["Cookie"], &[], &["*"]), 0, "a page cannot claim the cookie of its visitor");
    }
}
