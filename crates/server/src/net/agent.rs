//! The kind of a client's program, from its `User-Agent`.

use hyper::header::USER_AGENT;

use crate::net::headers::Headers;

/// A kind of program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Agent {
    /// The client does not send its program.
    Unknown,
    /// A browser on a desktop.
    Desktop,
    /// A browser or an application on a phone or tablet.
    Mobile,
    /// A crawler of a search engine or of another service.
    Bot,
    /// Any other program.
    Library,
}

impl Agent {
    /// Reads the kind from a request's `User-Agent`.
    pub(crate) fn of(headers: &impl Headers) -> Self {
        let Some(says) = headers.value(&USER_AGENT) else { return Agent::Unknown };
        let says = says.to_ascii_lowercase();
        let has = |word: &str| says.windows(word.len()).any(|part| part == word.as_bytes());
        match () {
            () if has("bot") || has("crawler") || has("spider") || has("headless") => Agent::Bot,
            () if has("mobile")
                || has("android")
                || has("iphone")
                || has("ipad")
                || has("cfnetwork")
                || has("okhttp")
                || has("dart") =>
            {
                Agent::Mobile
            }
            () if has("mozilla/") => Agent::Desktop,
            () if says.trim_ascii().is_empty() => Agent::Unknown,
            () => Agent::Library,
        }
    }

    /// The name in the statistics.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Agent::Unknown => "unknown",
            Agent::Desktop => "desktop",
            Agent::Mobile => "mobile",
            Agent::Bot => "bot",
            Agent::Library => "library",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_told_apart() {
        for (says, agent) in [
            ("Mozilla/5.0 (X11; Linux x86_64; rv:130.0) Gecko/20100101 Firefox/130.0", Agent::Desktop),
            (
                "Mozilla/5.0 (iPhone; CPU iPhone OS 18_0 like Mac OS X) AppleWebKit/605.1.15 Mobile/15E148 \
                 Safari/604.1",
                Agent::Mobile,
            ),
            ("okhttp/4.12.0", Agent::Mobile),
            ("Mozilla/5.0 (compatible; Googlebot/2.1)", Agent::Bot),
            ("Python/3.11 websockets/12.0", Agent::Library),
            (" ", Agent::Unknown),
        ] {
            let headers = [httparse::Header { name: "User-Agent", value: says.as_bytes() }];
            assert_eq!(Agent::of(&&headers[..]), agent, "{says}");
        }
        let none: &[httparse::Header<'_>] = &[];
        assert_eq!(Agent::of(&none), Agent::Unknown);
    }
}
