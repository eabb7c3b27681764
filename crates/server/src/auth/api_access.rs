//! The callers of the server API: their keys, and what each key may do.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use serde::Deserialize;
use serde_json::Value;
use touchline_config::{GrpcApiSettings, HttpApiSettings};
use touchline_engine::{TokenError, TokenSettings};

use super::fault::{TokenFault, TokenStage};
use super::issuer::{Issuer, IssuerPlace};
use super::key_set::KeySets;
use super::verifier::TokenRules;
use crate::net::glob::Glob;
use crate::start_error::StartError;

/// The names of callers that have no name in the configuration.
const DEFAULT: &str = "default";
const INSECURE: &str = "insecure";
const JWKS: &str = "jwks";
const GRPC: &str = "grpc";
/// The word for all operations, or all channels.
const ALL: &str = "*";

/// Returns the operations that a word of `operations` stands for; None = the operation or group does not exist.
pub(crate) type FindOperations = fn(&str) -> Option<Vec<&'static str>>;

/// The channels that a request names.
#[derive(Debug, Clone, Copy)]
pub(crate) enum NamedChannels<'a> {
    /// The request names no channel: the operation is not about channels, or about all of them.
    None,
    /// The request names one channel.
    One(&'a str),
    /// The request names several channels.
    Many(&'a [String]),
}

/// What a caller may do.
#[derive(Debug, Default)]
pub(crate) struct ApiRights {
    /// The operations of the caller; None = every operation.
    operations: Option<BTreeSet<&'static str>>,
    /// The channels of the caller; None = every channel, and operations that name none.
    channels: Option<Vec<Glob>>,
}

/// Why a caller may not do something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Denied {
    /// The key does not allow the operation.
    Operation,
    /// The key allows the operation, but not in this channel.
    Channel,
}

impl ApiRights {
    /// The right to do everything.
    pub(crate) const ALL: ApiRights = ApiRights { operations: None, channels: None };

    /// Checks a request.
    ///
    /// # Errors
    /// What the key does not allow.
    pub(crate) fn check(&self, operation: &str, channels: NamedChannels<'_>) -> Result<(), Denied> {
        if self.operations.as_ref().is_some_and(|known| !known.contains(operation)) {
            return Err(Denied::Operation);
        }
        let Some(patterns) = &self.channels else { return Ok(()) };
        // If a channel is required, an empty one stands for all channels, which no pattern matches.
        let is_open = |channel: &str| !channel.is_empty() && patterns.iter().any(|pattern| pattern.fits(channel));
        match channels {
            // An operation without channels affects all channels, so the key must name the operation itself.
            NamedChannels::None if self.operations.is_none() => Err(Denied::Operation),
            NamedChannels::None => Ok(()),
            NamedChannels::One(channel) if is_open(channel) => Ok(()),
            NamedChannels::Many(channels) if channels.iter().all(|channel| is_open(channel)) => Ok(()),
            NamedChannels::One(_) | NamedChannels::Many(_) => Err(Denied::Channel),
        }
    }
}

/// A caller of the server API.
#[derive(Debug)]
pub(crate) struct ApiCaller {
    /// The name of the caller, for logs and metrics.
    pub(crate) name: String,
    pub(crate) rights: ApiRights,
    /// The number of requests so far. Reloads that keep the name of the key keep the count.
    pub(crate) requests: Arc<AtomicU64>,
    /// The second of the last request that was searched for unknown fields, for each part of the operations.
    searched_s: [AtomicU64; 16],
}

impl ApiCaller {
    fn new(name: &str, rights: ApiRights) -> Self {
        ApiCaller { name: name.to_owned(), rights, requests: Arc::default(), searched_s: Default::default() }
    }

    /// Whether the request is the first of its operation, and of those that share its part, in this second. `place`:
    /// the place of the operation.
    pub(crate) fn is_first_in_second(&self, place: usize, now_s: u64) -> bool {
        let last_s = &self.searched_s[place % self.searched_s.len()];
        let is_first = last_s.load(Relaxed) != now_s;
        if is_first {
            last_s.store(now_s, Relaxed);
        }
        is_first
    }
}

/// All callers of the server API.
pub(crate) struct ApiAccess {
    /// The caller with `http_api.key`, or every caller if the server API needs no key.
    default: ApiCaller,
    is_open: bool,
    /// The secrets with their callers. No secret is empty.
    keys: Vec<(Box<[u8]>, ApiCaller)>,
    secret: Box<[u8]>,
    tokens: Option<ApiTokens>,
    /// The secret of `grpc_api.key` with its caller; None = it is not set, or gRPC is off.
    grpc: Option<(Box<[u8]>, ApiCaller)>,
}

/// The caller that all valid tokens stand for.
struct ApiTokens {
    caller: ApiCaller,
    rules: TokenRules,
    /// The words that the `scope` claim must contain, all of them.
    scopes: Vec<String>,
}

/// The claim that says what a token is for.
#[derive(Deserialize, Default)]
#[serde(default)]
struct ApiClaims {
    scope: Value,
}

impl ApiClaims {
    /// Whether the claim contains a word. The claim is a list, or a text with spaces (RFC 8693 section 4.2).
    fn has(&self, scope: &str) -> bool {
        match &self.scope {
            Value::String(text) => text.split_ascii_whitespace().any(|word| word == scope),
            Value::Array(words) => words.iter().any(|word| word == scope),
            _ => false,
        }
    }
}

impl ApiAccess {
    /// Makes the callers of these settings. `sets`: takes the key sets that have to be fetched.
    ///
    /// # Errors
    /// When an operation or a pattern is unknown, or the address of keys cannot be used.
    pub(crate) fn new(
        settings: &HttpApiSettings,
        find: FindOperations,
        sets: &mut KeySets,
    ) -> Result<Self, StartError> {
        let mut keys = Vec::new();
        for named in settings.keys.iter().filter(|named| !named.options.key.is_empty()) {
            let fault = |key, word: &str, reason| StartError::ApiKey {
                name: named.name.clone(),
                key,
                word: word.to_owned(),
                reason,
            };
            let rights = ApiRights {
                operations: operations(&named.options.operations, find)
                    .map_err(|word| fault("operations", word, "is neither an operation nor a group of them"))?,
                channels: patterns(&named.options.channels)
                    .map_err(|word| fault("channels", word, "is not a pattern of channels"))?,
            };
            keys.push((named.options.key.as_bytes().into(), ApiCaller::new(&named.name, rights)));
        }
        let jwks = &settings.jwks;
        let tokens = jwks.enabled.then(|| ApiTokens::new(settings, sets)).transpose()?;
        let name = if settings.insecure { INSECURE } else { DEFAULT };
        Ok(ApiAccess {
            default: ApiCaller::new(name, ApiRights::ALL),
            is_open: settings.insecure,
            keys,
            secret: settings.key.as_bytes().into(),
            tokens,
            grpc: None,
        })
    }

    /// Adds the caller with the key of gRPC.
    pub(crate) fn with_grpc(mut self, settings: &GrpcApiSettings) -> Self {
        let secret = Some(settings.key.as_bytes()).filter(|secret| settings.enabled && !secret.is_empty());
        self.grpc = secret.map(|secret| (secret.into(), ApiCaller::new(GRPC, ApiRights::ALL)));
        self
    }

    /// Returns the caller of every request, if the server API needs no key.
    pub(crate) fn anybody(&self) -> Option<&ApiCaller> {
        self.is_open.then_some(&self.default)
    }

    /// Returns the caller with this key.
    pub(crate) fn of_key(&self, shown: &[u8]) -> Option<&ApiCaller> {
        if !self.secret.is_empty() && is_same_secret(shown, &self.secret) {
            return Some(&self.default);
        }
        self.keys.iter().find(|(secret, _)| is_same_secret(shown, secret)).map(|(_, caller)| caller)
    }

    /// Returns the caller over gRPC with this key.
    #[cfg(feature = "grpc")]
    pub(crate) fn of_grpc_key(&self, shown: &[u8]) -> Option<&ApiCaller> {
        let own = self.grpc.as_ref().filter(|(secret, _)| is_same_secret(shown, secret)).map(|(_, caller)| caller);
        own.or_else(|| self.of_key(shown))
    }

    /// Returns the caller that a token names; None = the server API accepts no tokens.
    pub(crate) fn of_token(&self, token: &str, now_s: u64) -> Option<Result<&ApiCaller, TokenError>> {
        let tokens = self.tokens.as_ref()?;
        Some(tokens.check(token, now_s).map(|()| &tokens.caller).map_err(|fault| fault.error))
    }

    /// Continues the counts of the callers with the same names.
    pub(super) fn count_on(mut self, before: &ApiAccess) -> Self {
        let of_name = |name: &str| before.callers().find(|caller| caller.name == name);
        let keys = self.keys.iter_mut().map(|(_, caller)| caller);
        let tokens = self.tokens.as_mut().map(|tokens| &mut tokens.caller);
        let grpc = self.grpc.as_mut().map(|(_, caller)| caller);
        for caller in std::iter::once(&mut self.default).chain(keys).chain(tokens).chain(grpc) {
            if let Some(before) = of_name(&caller.name) {
                caller.requests = Arc::clone(&before.requests);
            }
        }
        self
    }

    /// Returns all callers, for metrics.
    pub(crate) fn callers(&self) -> impl Iterator<Item = &ApiCaller> {
        let named = self.keys.iter().map(|(_, caller)| caller);
        let grpc = self.grpc.as_ref().map(|(_, caller)| caller);
        std::iter::once(&self.default).chain(named).chain(self.tokens.as_ref().map(|tokens| &tokens.caller)).chain(grpc)
    }
}

impl ApiTokens {
    fn new(settings: &HttpApiSettings, sets: &mut KeySets) -> Result<Self, StartError> {
        let jwks = &settings.jwks;
        let of_issuer = TokenSettings {
            jwks_public_endpoint: jwks.endpoint.clone(),
            insecure_skip_jwks_endpoint_safety_check: jwks.insecure_skip_jwks_endpoint_safety_check,
            audience: jwks.audience.clone(),
            issuer: jwks.issuer.clone(),
            ..TokenSettings::default()
        };
        let place = IssuerPlace {
            section: "http_api.jwks",
            endpoint: "endpoint",
            tls_section: "http_api.jwks.tls",
            tls: &jwks.tls,
        };
        let rules = TokenRules::of(Issuer::new(&of_issuer, &place, sets)?);
        let scopes = jwks.scope.split_whitespace().map(str::to_owned).collect();
        Ok(ApiTokens { caller: ApiCaller::new(JWKS, ApiRights::ALL), rules, scopes })
    }

    fn check(&self, token: &str, now_s: u64) -> Result<(), TokenFault> {
        let claims: ApiClaims = self.rules.verify(token, now_s)?;
        if self.scopes.iter().all(|scope| claims.has(scope)) {
            return Ok(());
        }
        Err(TokenFault::invalid(
            TokenStage::Claims,
            "scope of the token does not contain all words of http_api.jwks.scope",
        ))
    }
}

/// Returns the operations that words stand for; None = all operations.
///
/// # Errors
/// The first word that is neither an operation nor a group.
fn operations(words: &[String], find: FindOperations) -> Result<Option<BTreeSet<&'static str>>, &str> {
    let mut all = BTreeSet::new();
    for word in words {
        if word == ALL {
            return Ok(None);
        }
        all.extend(find(word).ok_or(word.as_str())?);
    }
    Ok(Some(all))
}

/// Returns the patterns of channels; None = all channels.
///
/// # Errors
/// The first word that is not a pattern.
fn patterns(words: &[String]) -> Result<Option<Vec<Glob>>, &str> {
    if words.iter().any(|word| word == ALL) {
        return Ok(None);
    }
    words.iter().map(|word| Glob::parse(word).ok_or(word.as_str())).collect::<Result<_, _>>().map(Some)
}

/// Compares secrets in a time that does not depend on where they differ.
fn is_same_secret(shown: &[u8], secret: &[u8]) -> bool {
    aws_lc_rs::constant_time::verify_slices_are_equal(shown, secret).is_ok()
}

#[cfg(test)]
mod tests {
    use touchline_config::{ApiKeySettings, NamedApiKey};

    use super::*;

    fn find(word: &str) -> Option<Vec<&'static str>> {
        match word {
            "publish" => Some(vec!["publish"]),
            "@read" => Some(vec!["history", "info"]),
            _ => None,
        }
    }

    fn access(keys: &[(&str, &str, &[&str], &[&str])]) -> Result<ApiAccess, StartError> {
        let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        let named = |(name, key, operations, channels): &(&str, &str, &[&str], &[&str])| NamedApiKey {
            name: (*name).to_owned(),
            options: ApiKeySettings {
                key: (*key).to_owned(),
                operations: texts(operations),
                channels: texts(channels),
            },
        };
        let keys = keys.iter().map(named).collect();
        let settings = HttpApiSettings { key: "whole".into(), keys, ..HttpApiSettings::default() };
        ApiAccess::new(&settings, find, &mut KeySets::default())
    }

    #[test]
    fn a_key_is_known_by_all_of_its_secret_and_an_empty_one_by_nothing() {
        let access = access(&[("one", "1111", &["*"], &["*"]), ("none", "", &["*"], &["*"])]).expect("good");
        let name = |key: &str| access.of_key(key.as_bytes()).map(|caller| caller.name.as_str());
        assert_eq!([name("whole"), name("1111")], [Some("default"), Some("one")]);
        assert_eq!([name(""), name("111"), name("11111"), name("one")], [None; 4]);
        assert!(access.anybody().is_none() && access.of_token("a.b.c", 0).is_none());
    }

    #[test]
    fn a_key_may_do_what_its_lists_name_and_nothing_else() {
        use NamedChannels::{Many, None as Nothing, One};
        let both = [String::from("a:1"), String::from("b:1")];
        let one = [String::from("a:1"), String::from("a:2")];
        type Case<'a> = (&'a [&'a str], &'a [&'a str], &'a str, NamedChannels<'a>, Result<(), Denied>);
        let cases: [Case<'_>; 15] = [
            (&["*"], &["*"], "info", Nothing, Ok(())),
            (&["*"], &["*"], "publish", One("x"), Ok(())),
            (&["publish"], &["*"], "publish", One("x"), Ok(())),
            (&["publish"], &["*"], "history", One("x"), Err(Denied::Operation)),
            (&["publish", "@read"], &["*"], "info", Nothing, Ok(())),
            (&["*"], &["a:*"], "publish", One("a:1"), Ok(())),
            (&["*"], &["a:*"], "publish", One("b:1"), Err(Denied::Channel)),
            (&["*"], &["a:*"], "publish", One(""), Err(Denied::Channel)),
            (&["*"], &["{a:*,}"], "publish", One(""), Err(Denied::Channel)),
            (&["*"], &["?*", "**"], "unsubscribe", One(""), Err(Denied::Channel)),
            (&["*"], &["a:*"], "broadcast", Many(&one), Ok(())),
            (&["*"], &["a:*"], "broadcast", Many(&both), Err(Denied::Channel)),
            (&["*"], &["a:*"], "info", Nothing, Err(Denied::Operation)),
            (&["@read"], &["a:*"], "info", Nothing, Ok(())),
            (&["@read"], &["a:*"], "history", One("b:1"), Err(Denied::Channel)),
        ];
        for (operations, channels, operation, named, expected) in cases {
            let access = access(&[("one", "1111", operations, channels)]).expect("good");
            let rights = &access.of_key(b"1111").expect("it is known").rights;
            assert_eq!(rights.check(operation, named), expected, "{operations:?} {channels:?} {operation} {named:?}");
        }
    }

    #[test]
    fn a_word_that_stands_for_nothing_is_refused_by_its_key() {
        for (operations, channels, expected) in [
            ("publsh", "*", "http_api.keys[one].operations: \"publsh\" is neither an operation nor a group of them"),
            ("*", "[", "http_api.keys[one].channels: \"[\" is not a pattern of channels"),
        ] {
            let fault = access(&[("one", "1111", &[operations], &[channels])]).err().expect("it is refused");
            assert_eq!(fault.to_string(), expected);
        }
    }

    #[test]
    fn a_scope_is_a_word_of_a_text_or_of_a_list() {
        for (claims, expected) in [
            (r#"{"scope":"a live:api b"}"#, true),
            (r#"{"scope":["a","live:api"]}"#, true),
            (r#"{"scope":"live:api2"}"#, false),
            (r#"{"scope":["a live:api"]}"#, false),
            (r#"{"scope":7}"#, false),
            ("{}", false),
        ] {
            let claims: ApiClaims = serde_json::from_str(claims).expect("JSON");
            assert_eq!(claims.has("live:api"), expected);
        }
    }
}
