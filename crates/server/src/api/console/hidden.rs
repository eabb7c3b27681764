//! Hides payloads from viewers: they see only the sizes.

use std::net::IpAddr;

use serde_json::{Map, Value, json};

/// The fields that contain payloads.
const PAYLOADS: [&str; 8] = ["data", "b64data", "info", "conn_info", "chan_info", "meta", "payload", "tags"];

/// Replaces payloads in a result by their sizes.
pub(super) fn hide(value: &mut Value) {
    match value {
        Value::Object(fields) => hide_fields(fields),
        Value::Array(items) => items.iter_mut().for_each(hide),
        _ => {}
    }
}

/// Returns the network of an address: 24 bits of IPv4, 48 bits of IPv6.
fn network(address: &str) -> String {
    match address.parse::<IpAddr>() {
        Ok(IpAddr::V4(v4)) => {
            let [a, b, c, _] = v4.octets();
            format!("{a}.{b}.{c}.0/24")
        }
        Ok(IpAddr::V6(v6)) => {
            let [a, b, c, ..] = v6.segments();
            format!("{a:x}:{b:x}:{c:x}::/48")
        }
        Err(_) => String::new(),
    }
}

fn hide_fields(fields: &mut Map<String, Value>) {
    let mut size = None;
    for name in PAYLOADS {
        if let Some(payload) = fields.remove(name) {
            *size.get_or_insert(0) += payload.to_string().len();
        }
    }
    // A dead event that cannot be read is a text.
    if fields.get("event").is_some_and(Value::is_string) {
        size = fields.remove("event").map(|event| event.to_string().len());
    }
    if let Some(Value::String(address)) = fields.get_mut("address") {
        *address = network(address);
    }
    fields.values_mut().for_each(hide);
    if let Some(size) = size {
        fields.insert("size".to_owned(), json!(size));
        fields.insert("hidden".to_owned(), json!(true));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payloads_are_replaced_wherever_they_stand() {
        let mut result = json!({"result": {"publications": [{"data": {"a": 1}, "offset": 7, "info": {"user": "u"}}]}});
        hide(&mut result);
        let publication = &result["result"]["publications"][0];
        assert_eq!(*publication, json!({"offset": 7, "size": 19, "hidden": true}));
        let mut other = json!([{"event": "secret"}, {"address": "10.1.2.3"}, {"address": "2001:db8:7:8::1"}]);
        hide(&mut other);
        let expected = json!([{"size": 8, "hidden": true}, {"address": "10.1.2.0/24"}, {"address": "2001:db8:7::/48"}]);
        assert_eq!(other, expected);
    }
}
