//! The user and the password, or the token, in the addresses of NATS. The client reads only its options.

use std::io;

use async_nats::{ConnectOptions, ServerAddr};
use percent_encoding::percent_decode_str;

/// The credentials in an address. As in all clients of NATS, a user without a password is a token.
#[derive(Debug, Clone, PartialEq, Eq)]
enum UrlCredentials {
    User { user: String, password: String },
    Token(String),
}

impl UrlCredentials {
    fn of(server: &ServerAddr) -> io::Result<Option<Self>> {
        let decoded = |text: &str| {
            let text = percent_decode_str(text).decode_utf8();
            text.map(String::from).map_err(|_| io::Error::other("the user or the password is not UTF-8"))
        };
        Ok(match (server.username(), server.password()) {
            (None, _) => None,
            (Some(user), Some(password)) => {
                Some(UrlCredentials::User { user: decoded(user)?, password: decoded(password)? })
            }
            (Some(token), None) => Some(UrlCredentials::Token(decoded(token)?)),
        })
    }
}

/// Sets the credentials that the addresses contain, if any.
///
/// # Errors
/// Fails if two addresses contain different credentials, because the client uses the same for all. The text never
/// contains them.
pub(crate) fn with_credentials(options: ConnectOptions, servers: &[ServerAddr]) -> io::Result<ConnectOptions> {
    let mut found = None;
    for server in servers {
        let Some(credentials) = UrlCredentials::of(server)? else { continue };
        if found.get_or_insert_with(|| credentials.clone()) != &credentials {
            return Err(io::Error::other("two addresses contain different users or passwords"));
        }
    }
    Ok(match found {
        Some(UrlCredentials::User { user, password }) => options.user_and_password(user, password),
        Some(UrlCredentials::Token(token)) => options.token(token),
        None => options,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_decoded_and_must_be_the_same_in_all_addresses() {
        let of = |url: &str| UrlCredentials::of(&url.parse().expect("an address")).expect("UTF-8");
        let user = |user: &str, password: &str| {
            Some(UrlCredentials::User { user: user.to_owned(), password: password.to_owned() })
        };
        assert_eq!(of("nats://a:4222"), None);
        assert_eq!(of("nats://no%40de:p%3Aw@a:4222"), user("no@de", "p:w"));
        assert_eq!(of("tls://node:@a"), Some(UrlCredentials::Token("node".to_owned())));
        assert_eq!(of("nats://t0ken@a"), Some(UrlCredentials::Token("t0ken".to_owned())));
        let all = |urls: &[&str]| {
            let servers: Vec<ServerAddr> = urls.iter().map(|url| url.parse().expect("an address")).collect();
            with_credentials(ConnectOptions::new(), &servers).map(drop)
        };
        assert!(all(&["nats://a", "nats://n:p@b", "nats://n:p@c"]).is_ok());
        let refused = all(&["nats://n:p@b", "nats://n:q@c"]).expect_err("they differ").to_string();
        assert_eq!(refused, "two addresses contain different users or passwords");
        assert!(all(&["nats://%ff:p@b"]).is_err());
    }
}
