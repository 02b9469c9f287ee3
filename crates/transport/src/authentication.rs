//! Codes that prove that a frame comes unaltered from a holder of its group's key.
//!
//! The code is SipHash-2-4 with 128 bits of output (Aumasson, Bernstein, "SipHash: a fast
//! short-input PRF", 2012) over header and payload as they travel. Decision 23 says why this
//! function, what it costs and what it does not protect from. The owner of a link or socket decides
//! which frames must carry a code, and which key makes it.

use std::hash::Hasher;

use siphasher::sip128::{Hasher128, SipHasher24};
use tributary_wire::frame::{CODE_BYTES, HEADER_BYTES, announcing_code};
use tributary_wire::{FrameKey, GroupId};

/// Sets the keys of direct links apart from everything else that a key may make codes of.
const DIRECT_LINK: &[u8; 16] = b"tributary direct";

/// The code behind an authenticated frame.
///
/// Compared in constant time, so that a forger who measures how long a refusal takes learns
/// nothing.
#[derive(Clone, Copy, Debug)]
pub struct AuthenticationCode([u8; CODE_BYTES]);

impl AuthenticationCode {
    /// Wraps what arrived behind a payload.
    pub(crate) const fn from_bytes(bytes: [u8; CODE_BYTES]) -> Self {
        Self(bytes)
    }

    /// The code, to be sent behind the payload.
    #[must_use]
    pub const fn to_bytes(self) -> [u8; CODE_BYTES] {
        self.0
    }
}

impl PartialEq for AuthenticationCode {
    fn eq(&self, other: &Self) -> bool {
        // One exclusive-or over the whole value, as for capabilities.
        (u128::from_ne_bytes(self.0) ^ u128::from_ne_bytes(other.0)) == 0
    }
}

impl Eq for AuthenticationCode {}

/// Makes and checks the codes of one group's frames.
#[derive(Clone, Copy)]
pub struct AuthenticationKey(SipHasher24);

impl AuthenticationKey {
    /// Prepares a group's key.
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
    pub fn for_frame_number(&self, number: u64) -> Self {
        let mut hasher = self.0;
        hasher.write(&number.to_le_bytes());
        Self(hasher)
    }

    /// The code of a frame. The header need not announce the code.
    #[must_use]
    pub fn code(&self, header: &[u8; HEADER_BYTES], payload: &[u8]) -> AuthenticationCode {
        let mut hasher = self.0;
        hasher.write(&announcing_code(*header));
        hasher.write(payload);
        AuthenticationCode(hasher.finish128().as_bytes())
    }
}

impl std::fmt::Debug for AuthenticationKey {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("AuthenticationKey(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Frame;
    use tributary_wire::frame::{Edge, Header, Message, Versions};
    use tributary_wire::{Capability, ChildIndex, Epoch};

    /// Vectors of the reference implementation (SipHash, vectors.h, `vectors_sip128`): the key is 0
    /// to 15, the input nothing and the single byte 0.
    #[test]
    fn the_function_is_the_published_one() {
        let key: [u8; 16] = std::array::from_fn(|index| index as u8);
        let AuthenticationKey(mut hasher) = AuthenticationKey::new(FrameKey::from_bytes(key));
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
        let empty = |AuthenticationKey(hasher): AuthenticationKey| hasher.finish128().as_bytes();
        let derived = 0x67cc_41e8_98e6_c430_4be8_2cbf_9e09_994e_u128.to_be_bytes();
        let expected = empty(AuthenticationKey::new(FrameKey::from_bytes(derived)));
        let of =
            |group, hosts| empty(AuthenticationKey::of_direct_link(key, GroupId(group), hosts));
        assert_eq!(of(7, [1, 2]), expected);
        assert_eq!(of(7, [2, 1]), expected);
        for (group, hosts) in [(8, [1, 2]), (7, [0, 2]), (7, [1, 3]), (7, [1, 1]), (2, [1, 7])] {
            assert_ne!(of(group, hosts), expected, "group {group}, hosts {hosts:?}");
        }
        let fifth = 0x195c_bf06_67b5_57fd_c82c_8056_662e_f5f1_u128.to_be_bytes();
        assert_eq!(empty(AuthenticationKey::new(key).for_frame_number(5)), fifth);
    }

    #[test]
    fn every_bit_of_a_frame_and_of_its_key_counts() {
        let edge = Edge {
            group: GroupId(4),
            epoch: Epoch(5),
            child: ChildIndex(6),
            capability: Capability::from_bytes([7; 16]),
            version: Versions::SPOKEN.newest,
        };
        let header = Header { edge, message: Message::Join };
        let bytes = header.encode();
        let payload = [8; 24];
        let key = AuthenticationKey::new(FrameKey::from_bytes([9; 16]));
        let code = key.code(&bytes, &payload);
        assert!(key.authenticates(&Frame { header, payload: &payload, code: Some(code) }));
        assert!(!key.authenticates(&Frame { header, payload: &payload, code: None }));
        for bit in 0..8 * HEADER_BYTES {
            let mut altered = announcing_code(bytes);
            altered[bit / 8] ^= 1 << (bit % 8);
            if announcing_code(altered) == altered {
                assert_ne!(key.code(&altered, &payload), code, "header bit {bit}");
            }
        }
        for bit in 0..8 * payload.len() {
            let mut altered = payload;
            altered[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(key.code(&bytes, &altered), code, "payload bit {bit}");
        }
        for bit in 0..8 * CODE_BYTES {
            let mut other = [9; 16];
            other[bit / 8] ^= 1 << (bit % 8);
            let other = AuthenticationKey::new(FrameKey::from_bytes(other));
            assert!(!other.authenticates(&Frame { header, payload: &payload, code: Some(code) }));
            let mut altered = code.to_bytes();
            altered[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(AuthenticationCode::from_bytes(altered), code);
        }
    }
}
