//! What someone most likely meant.

/// The candidate that a mistyped name most likely means, if any is near enough.
///
/// A candidate that ends in the whole name is the nearest of all, the first one of several: old configurations write
/// `api_key` for `http_api.key`.
pub(crate) fn nearest<'a>(name: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let name = plain(name);
    let allowed = (name.chars().count() / 4).max(2);
    candidates
        .map(|candidate| (score(&name, &plain(candidate)), candidate))
        .filter(|(score, _)| *score <= allowed)
        .min_by_key(|(score, candidate)| (*score, if *score == 1 { 0 } else { candidate.len() }))
        .map(|(_, candidate)| candidate)
}

/// Keys are compared without regard to case and to which of `.`, `_` and `-` joins their words.
fn plain(name: &str) -> String {
    name.chars().map(|c| if c == '.' || c == '-' { '_' } else { c.to_ascii_lowercase() }).collect()
}

fn score(name: &str, candidate: &str) -> usize {
    match candidate.strip_suffix(name) {
        Some("") => 0,
        Some(before) if before.ends_with('_') => 1,
        _ => distance(name, candidate),
    }
}

/// Edits that turn one text into the other: insert, delete, replace, or swap two neighbours (optimal string alignment).
pub(crate) fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut before_last = vec![0; b.len() + 1];
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i; b.len() + 1];
        for j in 1..=b.len() {
            let replaced = last[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            row[j] = replaced.min(last[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                row[j] = row[j].min(before_last[j - 2] + 1);
            }
        }
        before_last = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_are_counted_in_edits() {
        for (a, b, expected) in [
            ("", "", 0),
            ("", "abc", 3),
            ("port", "prot", 1),
            ("kitten", "sitting", 3),
            ("key", "key", 0),
            ("ключ", "клюв", 1),
        ] {
            assert_eq!(distance(a, b), expected, "{a} {b}");
            assert_eq!(distance(b, a), expected, "{b} {a}");
        }
    }

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
            ("client.channelLimit", Some("client.channel_limit")),
            ("redis.sentinel", None),
            ("x", None),
        ] {
            assert_eq!(nearest(written, keys.into_iter()), expected, "{written}");
        }
    }
}
