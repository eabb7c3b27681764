//! Finds the known name that a mistyped name most likely means.

/// The candidate that a mistyped name most likely means. `None` = no candidate is similar enough.
///
/// A candidate that ends with the whole name counts as nearest, and of several the first that is not in a list: old
/// configurations write `api_key` for `http_api.key`.
pub fn nearest<'a>(name: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let name = plain(name);
    let allowed = (name.chars().count() / 4).max(2);
    candidates
        .map(|candidate| (score(&name, &plain(candidate)), candidate))
        .filter(|(score, _)| *score <= allowed)
        .min_by_key(|(score, candidate)| {
            (*score, candidate.contains('['), if *score == 1 { 0 } else { candidate.len() })
        })
        .map(|(_, candidate)| candidate)
}

/// Normalizes a name for comparison: case does not matter, and `.`, `_` and `-` are equal.
fn plain(name: &str) -> String {
    name.chars().map(|c| if c == '.' || c == '-' { '_' } else { c.to_ascii_lowercase() }).collect()
}

fn score(name: &str, candidate: &str) -> usize {
    match candidate.strip_suffix(name) {
        Some("") => 0,
        Some(before) if before.ends_with('_') => 1,
        _ => strsim::osa_distance(name, candidate),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_key_is_the_one_that_was_meant() {
        let keys = [
            "client.channel_limit",
            "client.connection_limit",
            "http_api.key",
            "http_server.port",
            "client.token.hmac_secret_key",
        ];
        for (written, expected) in [
            ("client.chanel_limit", Some("client.channel_limit")),
            ("cliet.channel_limit", Some("client.channel_limit")),
            ("api_key", Some("http_api.key")),
            ("port", Some("http_server.port")),
            ("token_hmac_secret_key", Some("client.token.hmac_secret_key")),
            ("client.channel_limti", Some("client.channel_limit")),
            ("client.channelLimit", Some("client.channel_limit")),
            ("redis.sentinel", None),
            ("x", None),
        ] {
            assert_eq!(nearest(written, keys.into_iter()), expected, "{written}");
        }
    }
}
