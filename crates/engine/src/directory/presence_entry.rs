//! A subscriber in the presence of a channel: its metadata as a member of the channel's group.

use touchline_protocol::{ClientInfo, encode};
use touchline_registry::Entry;

use super::client_id::client_bytes;

/// Flag: presence shows the member.
const SHOWN: u8 = 1;
/// Flag: subscribers get join and leave events for the member.
pub(super) const ANNOUNCED: u8 = 2;
/// The bytes that a member takes in a list in addition to its content.
const PRESENCE_OVERHEAD_BYTES: usize = 64;

/// Writes the flags, the length of the user (4 bytes, little-endian), the user, then `ClientInfo` as JSON.
pub(super) fn meta(info: &ClientInfo, is_shown: bool, is_announced: bool) -> Vec<u8> {
    let mut meta = vec![if is_shown { SHOWN } else { 0 } | if is_announced { ANNOUNCED } else { 0 }];
    meta.extend_from_slice(&(info.user.len() as u32).to_le_bytes());
    meta.extend_from_slice(info.user.as_bytes());
    encode::client_info(&mut meta, info);
    meta
}

/// The flags, the user and the JSON of a member; all empty if the metadata is not valid.
pub(super) fn parts(meta: &[u8]) -> (u8, &[u8], &[u8]) {
    let read = || {
        let (flags, rest) = meta.split_first()?;
        let (length, rest) = rest.split_first_chunk::<4>()?;
        let (user, json) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        Some((*flags, user, json))
    };
    read().unwrap_or((0, &[], &[]))
}

/// The user of a shown member, which the registry counts; `None` = the member is not shown.
pub(super) fn shown_user(meta: &[u8]) -> Option<&[u8]> {
    let (flags, user, _) = parts(meta);
    (flags & SHOWN != 0).then_some(user)
}

/// Whether presence shows a member.
pub(super) fn is_shown(entry: &Entry) -> bool {
    shown_user(entry.meta()).is_some()
}

/// Writes `{"presence": {client: info}}` for some of the shown members. If there are more, the reply states that it is
/// a sample, and the exact number.
///
/// The JSON is written by hand: each member is JSON already, one answer copies thousands of them, and client ids need
/// no escapes.
pub(super) fn write(shown: &[Entry], count: u64) -> Vec<u8> {
    let size = shown.iter().map(|entry| entry.meta().len() + PRESENCE_OVERHEAD_BYTES).sum::<usize>();
    let mut out = Vec::with_capacity(size + PRESENCE_OVERHEAD_BYTES);
    out.extend_from_slice(b"{\"presence\":{");
    for (index, entry) in shown.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        out.push(b'"');
        out.extend_from_slice(&client_bytes(entry.owner()));
        out.extend_from_slice(b"\":");
        out.extend_from_slice(parts(entry.meta()).2);
    }
    out.push(b'}');
    if (shown.len() as u64) < count {
        out.extend_from_slice(format!(",\"sample\":true,\"num_clients\":{count}").as_bytes());
    }
    out.push(b'}');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Another node may have another version, or be broken. Unreadable metadata shows no user.
    #[test]
    fn metadata_that_are_not_valid_show_no_user() {
        let info = ClientInfo { user: "ann".into(), client: "1".into(), conn_info: None, chan_info: None };
        let json = br#"{"user":"ann","client":"1"}"#;
        for (is_shown, is_announced, flags) in [(false, false, 0), (true, false, 1), (false, true, 2), (true, true, 3)]
        {
            let meta = meta(&info, is_shown, is_announced);
            assert_eq!(parts(&meta), (flags, &b"ann"[..], &json[..]));
            assert_eq!(shown_user(&meta), is_shown.then_some(&b"ann"[..]));
            // Flags of a later version are ignored.
            let later = [&[flags | 0x80][..], &meta[1..]].concat();
            assert_eq!(
                (shown_user(&later), parts(&later).0 & ANNOUNCED != 0),
                (is_shown.then_some(&b"ann"[..]), is_announced)
            );
            for length in 0..1 + 4 + 3 {
                assert_eq!(parts(&meta[..length]), (0, &[][..], &[][..]), "{length} bytes");
            }
            assert_eq!(parts(&meta[..8]), (flags, &b"ann"[..], &[][..]));
        }
    }
}
