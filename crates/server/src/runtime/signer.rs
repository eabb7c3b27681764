//! Signs client ids, so that `/emulation` can authenticate clients.

use aws_lc_rs::hmac;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use touchline_engine::session::SessionSigner;
use touchline_registry::OwnerId;

/// Length of a signature in bytes; it is too long to be guessed.
const SIGNATURE_SIZE: usize = 16;

/// Signs and verifies client ids with the key of one incarnation of a node (HMAC-SHA-256, shortened). The signed text
/// contains the signature, so a shard stores nothing.
pub(crate) struct HmacSigner(hmac::Key);

impl HmacSigner {
    /// Makes a signer with this key, which must be random.
    pub(crate) fn new(key: [u8; 32]) -> Self {
        HmacSigner(hmac::Key::new(hmac::HMAC_SHA256, &key))
    }

    /// The client id of a signed text; None = this signer did not sign it.
    pub(crate) fn open(&self, signed: &str) -> Option<OwnerId> {
        let bytes = URL_SAFE_NO_PAD.decode(signed).ok()?;
        let (id, signature) = bytes.split_first_chunk::<16>()?;
        let is_good = signature.len() == SIGNATURE_SIZE
            && aws_lc_rs::constant_time::verify_slices_are_equal(signature, &self.signature(*id)).is_ok();
        is_good.then_some(OwnerId(*id))
    }

    fn signature(&self, id: [u8; 16]) -> [u8; SIGNATURE_SIZE] {
        let mut signature = [0; SIGNATURE_SIZE];
        signature.copy_from_slice(&hmac::sign(&self.0, &id).as_ref()[..SIGNATURE_SIZE]);
        signature
    }
}

impl SessionSigner for HmacSigner {
    fn sign(&self, client: OwnerId) -> String {
        URL_SAFE_NO_PAD.encode([&client.0[..], &self.signature(client.0)].concat())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signer_verifies_its_own_signatures_only() {
        let (ours, others) = (HmacSigner::new([1; 32]), HmacSigner::new([2; 32]));
        let signed = ours.sign(OwnerId([7; 16]));
        assert_eq!(ours.open(&signed), Some(OwnerId([7; 16])));
        assert_eq!(others.open(&signed), None);
        assert_eq!(ours.open(&signed[1..]), None);
        let forged = URL_SAFE_NO_PAD.encode([[8; 16], [0; 16]].concat());
        assert_eq!(ours.open(&forged), None);
        assert_eq!(ours.open(""), None);
    }
}
