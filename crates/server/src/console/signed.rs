//! Signed texts: the cookie of a session, and the token of a live connection. The server stores neither. A text that
//! one node has signed is valid on every node with the same secret.

use aws_lc_rs::hmac;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::role::ConsoleRole;

/// How long a session lasts, in seconds.
pub(crate) const SESSION_TIME: u64 = 12 * 3_600;
/// How long a session lasts without a request, in seconds.
pub(crate) const IDLE_TIME: u64 = 30 * 60;
/// How long the token of a live connection is valid, in seconds.
pub(crate) const TOKEN_TIME: u64 = 300;
/// The use of a session is noted when the last note is this old, in seconds.
const NOTE_INTERVAL: u64 = 60;

/// The purpose of a signed text. A text for one purpose is not valid for the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    Session = b's' as isize,
    Token = b't' as isize,
}

/// A session of a signed-in user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ConsoleSession {
    pub(crate) role: ConsoleRole,
    /// When the session began, in Unix seconds.
    began_s: u64,
    /// When the session was last used, as far as it was noted, in Unix seconds.
    used_s: u64,
}

impl ConsoleSession {
    /// Makes a session that begins now.
    pub(crate) fn begin(role: ConsoleRole, now_s: u64) -> Self {
        ConsoleSession { role, began_s: now_s, used_s: now_s }
    }

    /// Returns the same session as used now; None = the last note is recent enough.
    pub(crate) fn used(self, now_s: u64) -> Option<Self> {
        (now_s >= self.used_s + NOTE_INTERVAL).then_some(ConsoleSession { used_s: now_s, ..self })
    }
}

/// Signs and verifies with HMAC-SHA-256. Each role has a key of its own, which depends on its password, so that a new
/// password ends the earlier sessions.
pub(crate) struct ConsoleSigner {
    operator: hmac::Key,
    /// The key of viewers; None = no viewer password is set.
    viewer: Option<hmac::Key>,
}

impl ConsoleSigner {
    /// Makes a signer with this secret, for the roles with these passwords.
    pub(crate) fn new(secret: &str, password: &str, viewer_password: &str) -> Self {
        let secret = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
        let key = |password: &str| hmac::Key::new(hmac::HMAC_SHA256, hmac::sign(&secret, password.as_bytes()).as_ref());
        let viewer = (!viewer_password.is_empty()).then(|| key(viewer_password));
        ConsoleSigner { operator: key(password), viewer }
    }

    fn key(&self, role: ConsoleRole) -> Option<&hmac::Key> {
        match role {
            ConsoleRole::Operator => Some(&self.operator),
            ConsoleRole::Viewer => self.viewer.as_ref(),
        }
    }

    /// Returns the cookie of a session.
    pub(crate) fn cookie(&self, session: ConsoleSession) -> String {
        self.sign(Purpose::Session, session)
    }

    /// Returns the session of a cookie; None = the session has ended, or the cookie is not signed with this secret.
    pub(crate) fn session(&self, cookie: &str, now_s: u64) -> Option<ConsoleSession> {
        let session = self.open(Purpose::Session, cookie)?;
        let is_good = now_s < session.began_s.saturating_add(SESSION_TIME)
            && now_s < session.used_s.saturating_add(IDLE_TIME)
            && session.began_s <= session.used_s;
        is_good.then_some(session)
    }

    /// Returns a token for a live connection.
    pub(crate) fn token(&self, role: ConsoleRole, now_s: u64) -> String {
        self.sign(Purpose::Token, ConsoleSession::begin(role, now_s))
    }

    /// Returns the role of a token and its expiry in Unix seconds; None = it has expired, or is not signed with this
    /// secret.
    pub(crate) fn role_of(&self, token: &str, now_s: u64) -> Option<(ConsoleRole, u64)> {
        let ConsoleSession { role, began_s, .. } = self.open(Purpose::Token, token)?;
        let ends_s = began_s.saturating_add(TOKEN_TIME);
        (now_s < ends_s).then_some((role, ends_s))
    }

    fn sign(&self, purpose: Purpose, ConsoleSession { role, began_s, used_s }: ConsoleSession) -> String {
        let mut bytes = vec![purpose as u8, role.letter()];
        bytes.extend(began_s.to_be_bytes());
        bytes.extend(used_s.to_be_bytes());
        if let Some(key) = self.key(role) {
            let signature = hmac::sign(key, &bytes);
            bytes.extend(signature.as_ref());
        }
        URL_SAFE_NO_PAD.encode(bytes)
    }

    fn open(&self, purpose: Purpose, signed: &str) -> Option<ConsoleSession> {
        let bytes = URL_SAFE_NO_PAD.decode(signed).ok()?;
        let (text, signature) = bytes.split_at_checked(18)?;
        let ([of, letter], times) = text.split_first_chunk::<2>()?;
        let role = ConsoleRole::of_letter(*letter).filter(|_| *of == purpose as u8)?;
        hmac::verify(self.key(role)?, text, signature).ok()?;
        let (began_s, used_s) = times.split_first_chunk::<8>()?;
        let used_s = u64::from_be_bytes(used_s.try_into().ok()?);
        Some(ConsoleSession { role, began_s: u64::from_be_bytes(*began_s), used_s })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_ends_when_it_is_old_or_unused() {
        let signer = ConsoleSigner::new("secret", "operators", "viewers");
        let session = ConsoleSession::begin(ConsoleRole::Viewer, 1_000);
        let cookie = signer.cookie(session);
        assert_eq!(signer.session(&cookie, 1_000 + IDLE_TIME - 1), Some(session));
        assert_eq!(signer.session(&cookie, 1_000 + IDLE_TIME), None);
        assert_eq!(session.used(1_000 + NOTE_INTERVAL - 1), None);
        let mut used = session;
        for now_s in (1_000..1_000 + SESSION_TIME).step_by(600) {
            used = signer.session(&signer.cookie(used), now_s).expect("it is used").used(now_s).unwrap_or(used);
        }
        assert_eq!(signer.session(&signer.cookie(used), 1_000 + SESSION_TIME), None);
    }

    #[test]
    fn what_is_signed_for_one_purpose_or_by_another_secret_does_not_hold() {
        let (ours, others) = (ConsoleSigner::new("ours", "a", "b"), ConsoleSigner::new("others", "a", "b"));
        let (cookie, token) =
            (ours.cookie(ConsoleSession::begin(ConsoleRole::Operator, 5)), ours.token(ConsoleRole::Operator, 5));
        assert_eq!(ours.role_of(&token, 6), Some((ConsoleRole::Operator, 5 + TOKEN_TIME)));
        assert_eq!(ours.role_of(&token, 5 + TOKEN_TIME), None);
        assert!(ours.role_of(&cookie, 6).is_none() && ours.session(&token, 6).is_none());
        assert!(others.role_of(&token, 6).is_none() && others.session(&cookie, 6).is_none());
        for text in ["", "AAAA", &cookie[1..], &format!("{cookie}A")] {
            assert!(ours.session(text, 6).is_none(), "{text}");
        }
        let changed = ConsoleSigner::new("ours", "another", "");
        assert!(changed.session(&cookie, 6).is_none() && changed.role_of(&token, 6).is_none());
        let viewer = ours.cookie(ConsoleSession::begin(ConsoleRole::Viewer, 5));
        assert!(ours.session(&viewer, 6).is_some() && changed.session(&viewer, 6).is_none());
        assert!(changed.session(&changed.cookie(ConsoleSession::begin(ConsoleRole::Viewer, 5)), 6).is_none());
    }
}
