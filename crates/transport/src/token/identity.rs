//! The key pair that is derived from a token.
//!
//! Owns the derivation, and the encodings of the two halves. All holders of the token compute the
//! same pair. So a client knows the public half of its server in advance, and nothing but the token
//! has to be configured or distributed.
//!
//! Anybody who connects sees the public half, and can test guesses of the token against it offline.
//! That is hopeless against the 256 random bits of `tributary token create`, and against the 128
//! bits that a token should have at least. It succeeds against a word that somebody thought of.

use ring::digest::{SHA256, digest};
use ring::hkdf;
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};

use super::Token;

/// Separates this derivation from any other derivation from a token.
const DOMAIN: &[u8] = b"tributary control identity";

/// Names the derived value and the version of the derivation. Another version gives another key:
/// old and new daemons would then report different tokens.
const PURPOSE: &[u8] = b"ed25519 seed, version 1";

/// As above, of the key that [`Token::place_key`] gives.
const PLACE_PURPOSE: &[u8] = b"key of jobs' places, version 1";

const SEED_BYTES: usize = 32;
const PUBLIC_KEY_BYTES: usize = 32;

/// Bytes of a key's hash in its name: no two tokens ever have the same.
const NAME_HASH_BYTES: usize = 16;

/// No public name ends with it.
const NAME_SUFFIX: &str = ".tributary";

/// The bytes before a seed in PKCS #8, version 1: RFC 8410, section 7 and its example.
const PRIVATE_KEY_HEAD: [u8; 16] =
    [0x30, 0x2e, 0x02, 0x01, 0, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20];

/// The bytes before a public key in a SubjectPublicKeyInfo: RFC 8410, section 4.
const PUBLIC_KEY_HEAD: [u8; 12] =
    [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];

/// An Ed25519 key pair (RFC 8032) by which clients recognize servers that hold the same token.
///
/// Its secret half is never printed, like the token.
pub struct Identity {
    seed: [u8; SEED_BYTES],
    public_key: PublicKey,
}

/// The public half. A server proves that it holds the private half of the same pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublicKey([u8; PUBLIC_KEY_BYTES]);

impl Token {
    /// The key pair of this token. HKDF-SHA-256 (RFC 5869) of its characters is the Ed25519 seed,
    /// so the pair is always the same. Costs some ten thousand instructions.
    #[must_use]
    pub fn identity(&self) -> Identity {
        let seed = self.derive(PURPOSE);
        let pair = Ed25519KeyPair::from_seed_unchecked(&seed).expect("a seed is any 32 bytes");
        let public_key = pair.public_key().as_ref().try_into();
        let public_key = PublicKey(public_key.expect("public keys of Ed25519 have 32 bytes"));
        Identity { seed, public_key }
    }

    /// The key under which a manager with this token makes the secrets of jobs, so that the next one knows them.
    #[must_use]
    pub fn place_key(&self) -> [u8; SEED_BYTES] {
        self.derive(PLACE_PURPOSE)
    }

    fn derive(&self, purpose: &[u8]) -> [u8; SEED_BYTES] {
        let secret = hkdf::Salt::new(hkdf::HKDF_SHA256, DOMAIN).extract(self.0.as_bytes());
        let mut derived = [0; SEED_BYTES];
        secret
            .expand(&[purpose], hkdf::HKDF_SHA256)
            .and_then(|material| material.fill(&mut derived))
            .expect("HKDF gives up to 255 hashes, and this is as long as one");
        derived
    }
}

impl Identity {
    /// The private half in PKCS #8 (DER), as TLS libraries load it.
    #[must_use]
    pub fn private_key_der(&self) -> Vec<u8> {
        [&PRIVATE_KEY_HEAD[..], &self.seed].concat()
    }

    /// The public half.
    #[must_use]
    pub fn public_key(&self) -> PublicKey {
        self.public_key
    }
}

impl PublicKey {
    /// The key as a SubjectPublicKeyInfo (DER), as in a certificate.
    #[must_use]
    pub fn der(&self) -> Vec<u8> {
        [&PUBLIC_KEY_HEAD[..], &self.0].concat()
    }

    /// A name for the key, as of a host: clients name the key that they expect by it, so that a server with
    /// several tokens can choose. The first 16 bytes of its SHA-256, in hexadecimal.
    #[must_use]
    pub fn name(&self) -> String {
        let hash = digest(&SHA256, &self.0);
        let label = hash.as_ref()[..NAME_HASH_BYTES].iter().map(|byte| format!("{byte:02x}"));
        label.chain([NAME_SUFFIX.to_owned()]).collect()
    }

    /// Whether `signature` was made of `message` with the private half.
    #[must_use]
    pub fn has_signed(&self, message: &[u8], signature: &[u8]) -> bool {
        UnparsedPublicKey::new(&ED25519, self.0).verify(message, signature).is_ok()
    }
}

impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Identity").field("public_key", &self.public_key).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(text: &str) -> Token {
        Token(text.to_owned())
    }

    /// Computed with another implementation (Python's `hmac` for RFC 5869, OpenSSL for the public
    /// key): daemons and clients of different versions must agree on it for ever.
    #[test]
    fn the_derivation_is_the_documented_one() {
        let identity = token("0123456789abcdef0123456789abcdef").identity();
        assert_eq!(
            hex(&identity.seed),
            "42d6523ffde87aced87372307ac9c523961b640a01d394d12aa76010a9a0430c"
        );
        assert_eq!(
            hex(&identity.public_key.0),
            "8cc6ece0c6f3b7785e001b604da0107245a44976a6a786961d0161a3c824ea95"
        );
        assert_eq!(identity.public_key.name(), "c2935c5086c8eba6067fc15572234470.tributary");
    }

    #[test]
    fn equal_tokens_have_equal_keys_and_others_do_not() {
        let one = token("0123456789abcdef0123456789abcdef").identity();
        let same = token("0123456789abcdef0123456789abcdef").identity();
        let other = token("0123456789abcdef0123456789abcdee").identity();
        assert_eq!(one.private_key_der(), same.private_key_der());
        assert_eq!(one.public_key(), same.public_key());
        assert_ne!(one.public_key(), other.public_key());
    }

    #[test]
    fn only_the_pair_s_own_signatures_count() {
        let ours = token("0123456789abcdef0123456789abcdef").identity();
        let theirs = token("ffffffffffffffffffffffffffffffff").identity();
        let pair = Ed25519KeyPair::from_pkcs8_maybe_unchecked(&ours.private_key_der()).unwrap();
        let signature = pair.sign(b"hello");
        assert!(ours.public_key().has_signed(b"hello", signature.as_ref()));
        assert!(!ours.public_key().has_signed(b"hellp", signature.as_ref()));
        assert!(!ours.public_key().has_signed(b"hello", &signature.as_ref()[1..]));
        assert!(!theirs.public_key().has_signed(b"hello", signature.as_ref()));
    }

    #[test]
    fn debug_does_not_leak() {
        let identity = token("0123456789abcdef0123456789abcdef").identity();
        let text = format!("{identity:?}");
        assert!(text.contains("public_key") && !text.contains("seed"), "{text}");
    }

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}
