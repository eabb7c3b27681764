//! What a session keeps of its client's token, so that later bans can be checked against it.

/// Bytes that are kept of the hash of a token's id. With 100,000 revoked tokens and a million connections, the
/// probability that a token is mistaken for a revoked one is below one in 500,000.
const JTI_BYTES: usize = 7;

/// How far the clock of the token's issuer may be ahead, seconds.
const LEEWAY_S: u64 = 60;

/// The claims of a token that bans look at.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ShownToken<'a> {
    /// The token's id (`jti`); `None` or empty = it cannot be revoked individually.
    pub jti: Option<&'a str>,
    /// When the token was issued (`iat`), Unix seconds; `None` = it counts as older than every time.
    pub iat_s: Option<u64>,
}

impl ShownToken<'_> {
    /// When the token was issued; `None` if it does not say, or if the time is in the future. A time in the future,
    /// such as one in milliseconds, would make the token younger than every ban.
    pub(super) fn issued_s(&self, now_s: u64) -> Option<u64> {
        self.iat_s.filter(|iat_s| *iat_s <= now_s.saturating_add(LEEWAY_S))
    }
}

/// What is kept of a token. Each session has one; it consists of bytes so that it needs no alignment between fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenMark {
    /// A hash of the `jti`; zeros = the token has no `jti`.
    jti: [u8; JTI_BYTES],
    /// When the token was issued, Unix seconds; [`u32::MAX`] = there is no token.
    iat_s: [u8; 4],
}

impl TokenMark {
    /// The mark of a client that has shown no token. No ban of tokens concerns it.
    pub const NONE: TokenMark = TokenMark { jti: [0; JTI_BYTES], iat_s: u32::MAX.to_ne_bytes() };

    /// The mark of a token. `jti_hash`: `None` = the token has no id.
    pub(super) fn new(jti_hash: Option<u64>, iat_s: Option<u64>) -> Self {
        let iat_s = u32::try_from(iat_s.unwrap_or(0)).unwrap_or(u32::MAX).min(u32::MAX - 1);
        let mut jti = [0; JTI_BYTES];
        if let Some(hash) = jti_hash {
            jti.copy_from_slice(&mark_of(hash).to_le_bytes()[..JTI_BYTES]);
        }
        TokenMark { jti, iat_s: iat_s.to_ne_bytes() }
    }

    /// When the token was issued, Unix seconds; 0 = the token does not say; [`u32::MAX`] = there is no token.
    pub(crate) fn iat_s(self) -> u32 {
        u32::from_ne_bytes(self.iat_s)
    }

    /// The hash of the token's id, as [`mark_of`] returns it; `None` = the token has no id.
    pub(super) fn jti(self) -> Option<u64> {
        let mut bytes = [0; 8];
        bytes[..JTI_BYTES].copy_from_slice(&self.jti);
        Some(u64::from_le_bytes(bytes)).filter(|hash| *hash != 0)
    }

    /// Whether the client has shown a token.
    pub(crate) fn is_shown(self) -> bool {
        self.iat_s() != u32::MAX
    }
}

/// The bits of a hash that are kept, never 0.
pub(super) fn mark_of(hash: u64) -> u64 {
    (hash >> 8).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_keeps_what_is_judged() {
        let mark = TokenMark::new(Some(0x1234_5678_9abc_def0), Some(17));
        assert_eq!((mark.jti(), mark.iat_s(), mark.is_shown()), (Some(0x0012_3456_789a_bcde), 17, true));
        assert_eq!(TokenMark::new(Some(7), None).jti(), Some(1), "a hash of zeros is an id too");
        let bare = TokenMark::new(None, None);
        assert_eq!((bare.jti(), bare.iat_s(), bare.is_shown()), (None, 0, true));
        assert!(TokenMark::new(None, Some(u64::MAX)).is_shown());
        let issued = |iat_s| ShownToken { jti: None, iat_s }.issued_s(1_000);
        assert_eq!([Some(0), Some(1_060), None].map(issued), [Some(0), Some(1_060), None]);
        assert_eq!([Some(1_061), Some(u64::MAX)].map(issued), [None, None], "it has not come");
        assert_eq!((TokenMark::NONE.jti(), TokenMark::NONE.is_shown()), (None, false));
        assert_eq!((size_of::<TokenMark>(), align_of::<TokenMark>()), (11, 1));
    }
}
