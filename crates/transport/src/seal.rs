//! Codes that say that a frame comes from a holder of its group's key, unaltered.
//!
//! Owns what the code is computed of and with: SipHash-2-4 with 128 bits of output (Aumasson,
//! Bernstein, "SipHash: a fast short-input PRF", 2012), over header and payload as they travel.
//! Why this one, what it costs and what it doesn't protect from: decision 23. Which frames must be
//! sealed, and under which key, is for the owner of a link or socket to say.

use std::hash::Hasher;

use siphasher::sip128::{Hasher128, SipHasher24};
use tributary_wire::frame::{HEADER_BYTES, SEAL_BYTES, announcing_seal};
use tributary_wire::{FrameKey, GroupId};

/// Sets the keys of direct links apart from everything else that a key may make codes of.
const DIRECT_LINK: &[u8; 16] = b"tributary direct";

/// The code behind a sealed frame.
///
/// Compared in constant time, so that a forger who measures how long a refusal takes learns nothing.
#[derive(Clone, Copy, Debug)]
pub struct Seal([u8; SEAL_BYTES]);

impl Seal {
    /// Wraps what arrived behind a payload.
    pub(crate) const fn from_bytes(bytes: [u8; SEAL_BYTES]) -> Self {
        Self(bytes)
    }

    /// The code, to be sent behind the payload.
    #[must_use]
    pub const fn to_bytes(self) -> [u8; SEAL_BYTES] {
        self.0
    }
}

impl PartialEq for Seal {
    fn eq(&self, other: &Self) -> bool {
        // One exclusive-or over the whole value, as for capabilities.
        (u128::from_ne_bytes(self.0) ^ u128::from_ne_bytes(other.0)) == 0
    }
}

impl Eq for Seal {}

/// What makes and checks the codes of one group's frames.
#[derive(Clone, Copy)]
pub struct SealKey(SipHasher24);

impl SealKey {
    /// For a group's key.
    #[must_use]
    pub fn new(key: FrameKey) -> Self {
        Self(SipHasher24::new_with_key(&key.to_bytes()))
    }

    /// For the direct link between two hosts of a communicator whose key is `key`: the code, under that
    /// key, of the words `tributary direct`, the group number of the link's leaders, the lower host and
    /// the higher one (4 bytes each, little-endian). So a frame counts on no other link than its own.
    #[must_use]
    pub fn of_direct_link(key: FrameKey, group: GroupId, hosts: [u32; 2]) -> Self {
        let Self(mut hasher) = Self::new(key);
        hasher.write(DIRECT_LINK);
        let [one, other] = hosts;
        for number in [group.0, one.min(other), one.max(other)] {
            hasher.write(&number.to_le_bytes());
        }
        Self::new(FrameKey::from_bytes(hasher.finish128().as_bytes()))
    }

    /// For frame number `number` of one direction of a link whose codes also tell the order of its
    /// frames: the number (8 bytes, little-endian) goes before the header.
    #[must_use]
    pub fn numbered(&self, number: u64) -> Self {
        let mut hasher = self.0;
        hasher.write(&number.to_le_bytes());
        Self(hasher)
    }

    /// The code of a frame with this header, which need not announce it, and payload.
    #[must_use]
    pub fn seal(&self, header: &[u8; HEADER_BYTES], payload: &[u8]) -> Seal {
        let mut hasher = self.0;
        hasher.write(&announcing_seal(*header));
        hasher.write(payload);
        Seal(hasher.finish128().as_bytes())
    }

    /// Whether `frame` is sealed under this key.
    #[must_use]
    pub fn has_sealed(&self, frame: &crate::Frame<'_>) -> bool {
        // A header has one encoding only, so this is what arrived.
        frame.seal.is_some_and(|seal| self.seal(&frame.header.encode(), frame.payload) == seal)
    }
}

impl std::fmt::Debug for SealKey {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("SealKey(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Frame;
    use tributary_wire::frame::{Edge, Header, Message};
    use tributary_wire::{Capability, ChildIndex, Epoch};

    /// Vectors of the reference implementation (SipHash, vectors.h, `vectors_sip128`): the key is 0
    /// to 15, the input nothing and the single byte 0.
    #[test]
    fn the_function_is_the_published_one() {
        let key: [u8; 16] = std::array::from_fn(|index| index as u8);
        let SealKey(mut hasher) = SealKey::new(FrameKey::from_bytes(key));
        let nothing = 0xa381_7f04_ba25_a8e6_6df6_7214_c755_0293_u128;
        assert_eq!(hasher.finish128().as_bytes(), nothing.to_be_bytes());
        hasher.write(&[0]);
        let zero = 0xda87_c1d8_6b99_af44_3476_5911_9b22_fc45_u128;
        assert_eq!(hasher.finish128().as_bytes(), zero.to_be_bytes());
    }

    /// The expected codes come from another implementation of the function, checked with the vectors
    /// above.
    #[test]
    fn derived_keys_are_the_described_ones_and_differ_between_links() {
        let key: [u8; 16] = std::array::from_fn(|index| index as u8);
        let key = FrameKey::from_bytes(key);
        let empty = |SealKey(hasher): SealKey| hasher.finish128().as_bytes();
        let derived = 0x67cc_41e8_98e6_c430_4be8_2cbf_9e09_994e_u128.to_be_bytes();
        let expected = empty(SealKey::new(FrameKey::from_bytes(derived)));
        let of = |group, hosts| empty(SealKey::of_direct_link(key, GroupId(group), hosts));
        assert_eq!(of(7, [1, 2]), expected);
        assert_eq!(of(7, [2, 1]), expected);
        for (group, hosts) in [(8, [1, 2]), (7, [0, 2]), (7, [1, 3]), (7, [1, 1]), (2, [1, 7])] {
            assert_ne!(of(group, hosts), expected, "group {group}, hosts {hosts:?}");
        }
        let fifth = 0x195c_bf06_67b5_57fd_c82c_8056_662e_f5f1_u128.to_be_bytes();
        assert_eq!(empty(SealKey::new(key).numbered(5)), fifth);
    }

    #[test]
    fn every_bit_of_a_frame_and_of_its_key_counts() {
        let edge = Edge {
            group: GroupId(4),
            epoch: Epoch(5),
            child: ChildIndex(6),
            capability: Capability::from_bytes([7; 16]),
        };
        let header = Header { edge, message: Message::Join };
        let bytes = header.encode();
        let payload = [8; 24];
        let key = SealKey::new(FrameKey::from_bytes([9; 16]));
        let seal = key.seal(&bytes, &payload);
        assert!(key.has_sealed(&Frame { header, payload: &payload, seal: Some(seal) }));
        assert!(!key.has_sealed(&Frame { header, payload: &payload, seal: None }));
        for bit in 0..8 * HEADER_BYTES {
            let mut altered = announcing_seal(bytes);
            altered[bit / 8] ^= 1 << (bit % 8);
            if announcing_seal(altered) == altered {
                assert_ne!(key.seal(&altered, &payload), seal, "header bit {bit}");
            }
        }
        for bit in 0..8 * payload.len() {
            let mut altered = payload;
            altered[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(key.seal(&bytes, &altered), seal, "payload bit {bit}");
        }
        for bit in 0..8 * SEAL_BYTES {
            let mut other = [9; 16];
            other[bit / 8] ^= 1 << (bit % 8);
            let other = SealKey::new(FrameKey::from_bytes(other));
            assert!(!other.has_sealed(&Frame { header, payload: &payload, seal: Some(seal) }));
            let mut code = seal.to_bytes();
            code[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(Seal::from_bytes(code), seal);
        }
    }
}
