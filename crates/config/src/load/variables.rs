//! Environment variables in the header fields and metadata for a backend, so that the file need not contain a backend's
//! secret.

use touchline_engine::hook::ProxySettings;

use crate::configuration::Configuration;
use crate::finding::Finding;

/// The prefixes of the variables that may be used.
const PREFIXES: [&str; 2] = ["TOUCHLINE_VAR_", "CENTRIFUGO_VAR_"];

/// Replaces `${CENTRIFUGO_VAR_x}` in `static_headers` and `static_metadata` by the value of this variable. A variable
/// that is not set is an error, because the backend would receive the text instead of the secret.
pub(super) fn replace(configuration: &mut Configuration, variables: &[(String, String)], findings: &mut Vec<Finding>) {
    let settings = &mut configuration.settings;
    let (client, channel) = (&mut settings.client.proxy, &mut settings.channel.proxy);
    let sections: [(&str, &mut ProxySettings); 7] = [
        ("client.proxy.connect", &mut client.connect.proxy),
        ("client.proxy.refresh", &mut client.refresh.proxy),
        ("channel.proxy.subscribe", &mut channel.subscribe),
        ("channel.proxy.publish", &mut channel.publish),
        ("channel.proxy.sub_refresh", &mut channel.sub_refresh),
        ("rpc.proxy", &mut settings.rpc.proxy),
        ("registry.proxy.conflict", &mut settings.registry.proxy.conflict),
    ];
    let named = settings.proxies.iter_mut().map(|named| (format!("proxies[{}]", named.name), &mut named.proxy));
    for (section, proxy) in sections.into_iter().map(|(name, proxy)| (name.to_owned(), proxy)).chain(named) {
        let headers = proxy.http.static_headers.0.iter_mut().map(|pair| ("http.static_headers", pair));
        let metadata = proxy.grpc.static_metadata.0.iter_mut().map(|pair| ("grpc.static_metadata", pair));
        for (key, (name, value)) in headers.chain(metadata) {
            match replaced(value, variables) {
                Ok(text) => *value = text,
                Err(missing) => {
                    let text = format!("{section}.{key}: {name} needs the variable {missing}, which is not set");
                    findings.push(Finding::error(text, None));
                }
            }
        }
    }
}

/// The text with its variables replaced.
///
/// # Errors
/// The first variable that is not set.
fn replaced(text: &str, variables: &[(String, String)]) -> Result<String, String> {
    let (mut out, mut rest) = (String::new(), text);
    while let Some((before, behind)) = rest.split_once("${") {
        let Some((name, after)) = behind.split_once('}').filter(|(name, _)| is_variable(name)) else {
            out.push_str(before);
            out.push_str("${");
            rest = behind;
            continue;
        };
        let value = variables.iter().find(|(known, _)| known == name).map(|(_, value)| value);
        out.push_str(before);
        out.push_str(value.ok_or_else(|| name.to_owned())?);
        rest = after;
    }
    out.push_str(rest);
    Ok(out)
}

fn is_variable(name: &str) -> bool {
    PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_replaced_and_other_text_stays() {
        let variables = [("CENTRIFUGO_VAR_KEY".to_owned(), "a}${b".to_owned()), ("OTHER".to_owned(), "x".to_owned())];
        for (text, expected) in [
            ("", Ok("")),
            ("plain $ { } ${", Ok("plain $ { } ${")),
            ("Bearer ${CENTRIFUGO_VAR_KEY}!", Ok("Bearer a}${b!")),
            ("${OTHER}", Ok("${OTHER}")),
            ("${CENTRIFUGO_VAR_NONE}", Err("CENTRIFUGO_VAR_NONE")),
            ("${${CENTRIFUGO_VAR_KEY}", Ok("${a}${b")),
        ] {
            assert_eq!(replaced(text, &variables), expected.map(str::to_owned).map_err(str::to_owned), "{text}");
        }
    }
}
