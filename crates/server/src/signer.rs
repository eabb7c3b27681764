//! What proves that a request is of a client: its id and a secret that only it was told.

use aws_lc_rs::hmac;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use touchline_engine::session::SessionSigner;
use touchline_registry::OwnerId;

/// Bytes of a proof: too many to be guessed.
const PROOF: usize = 16;

/// Makes and breaks the seals of one life of a node: the client id, and a proof of it by a key that nobody else knows.
/// So a shard keeps nothing.
pub(crate) struct HmacSigner(hmac::Key);

impl HmacSigner {
    /// Seals with a key of their own, which must be random.
    pub(crate) fn new(key: [u8; 32]) -> Self {
        HmacSigner(hmac::Key::new(hmac::HMAC_SHA256, &key))
    }

    /// Whose seal this is, if it is one of ours.
    pub(crate) fn open(&self, seal: &str) -> Option<OwnerId> {
        let bytes = URL_SAFE_NO_PAD.decode(seal).ok()?;
        let (id, proof) = bytes.split_first_chunk::<16>()?;
        let is_good =
            proof.len() == PROOF && aws_lc_rs::constant_time::verify_slices_are_equal(proof, &self.prove(*id)).is_ok();
        is_good.then_some(OwnerId(*id))
    }

    fn prove(&self, id: [u8; 16]) -> [u8; PROOF] {
        let mut proof = [0; PROOF];
        proof.copy_from_slice(&hmac::sign(&self.0, &id).as_ref()[..PROOF]);
        proof
    }
}

impl SessionSigner for HmacSigner {
    fn seal(&self, client: OwnerId) -> String {
        URL_SAFE_NO_PAD.encode([&client.0[..], &self.prove(client.0)].concat())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_own_seals_open() {
        let (ours, others) = (HmacSigner::new([1; 32]), HmacSigner::new([2; 32]));
        let seal = ours.seal(OwnerId([7; 16]));
        assert_eq!(ours.open(&seal), Some(OwnerId([7; 16])));
        assert_eq!(others.open(&seal), None);
        assert_eq!(ours.open(&seal[1..]), None);
        let forged = URL_SAFE_NO_PAD.encode([[8; 16], [0; 16]].concat());
        assert_eq!(ours.open(&forged), None);
        assert_eq!(ours.open(""), None);
    }
}
