//! The secrets by which jobs prove their places, also to a manager that has never seen them.
//!
//! A secret is a random part, and a code over it, the job's number and its owner, under a key that all managers of
//! one operator have. So a manager that comes after another knows whose place a secret proves before any aggregator has
//! told it of the job, and nobody gets the place of another tenant's job by asking first.

use alloc::vec::Vec;

use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use tributary_wire::control::JobPlace;
use tributary_wire::{Capability, JobId};

use super::caller::Caller;

/// Bytes of a secret that are random: they tell apart jobs that had the same number one after the other.
const RANDOM_BYTES: usize = 4;

/// Stands for the operator where a tenant has the length of its name.
const OPERATOR: u64 = u64::MAX;

/// Keys of places. The first makes secrets, every one recognises them.
pub(super) struct PlaceKeys(Vec<[u8; 32]>);

impl PlaceKeys {
    /// `keys` must not be empty.
    pub(super) fn new(keys: Vec<[u8; 32]>) -> Self {
        assert!(!keys.is_empty(), "without a key there is no secret to give");
        Self(keys)
    }

    /// The secret of a job. `drawn` must be unguessable; only a part of it is used.
    pub(super) fn secret(&self, job: JobId, owner: &Caller, drawn: Capability) -> Capability {
        let mut random = [0; RANDOM_BYTES];
        random.copy_from_slice(&drawn.to_bytes()[..RANDOM_BYTES]);
        secret_of(&self.0[0], job, owner, random)
    }

    /// Whether a manager of this operator has given the place to a job of `owner`.
    pub(super) fn proves(&self, place: JobPlace, owner: &Caller) -> bool {
        let mut random = [0; RANDOM_BYTES];
        random.copy_from_slice(&place.secret.to_bytes()[..RANDOM_BYTES]);
        self.0.iter().any(|key| secret_of(key, place.job, owner, random) == place.secret)
    }
}

fn secret_of(key: &[u8; 32], job: JobId, owner: &Caller, random: [u8; RANDOM_BYTES]) -> Capability {
    let number = u64::from(job.0) << 32 | u64::from(u32::from_le_bytes(random));
    let name = owner.tenant().unwrap_or_default().as_bytes();
    // The second word says how many follow, so no text of words begins another one.
    let length = owner.tenant().map_or(OPERATOR, |name| name.len() as u64);
    let name = name.chunks(8).map(|part| {
        let mut word = [0; 8];
        word[..part.len()].copy_from_slice(part);
        u64::from_le_bytes(word)
    });
    let code = code([number, length].into_iter().chain(name), *key);
    let mut secret = [0; 16];
    secret[..RANDOM_BYTES].copy_from_slice(&random);
    secret[RANDOM_BYTES..].copy_from_slice(&code[..16 - RANDOM_BYTES]);
    Capability::from_bytes(secret)
}

/// A code over words, none of which texts may begin another: each word chooses one of the 2^64 keystreams of a key,
/// which begins with the next key. Only ChaCha20 is needed, which draws all other secrets too.
fn code(words: impl Iterator<Item = u64>, mut key: [u8; 32]) -> [u8; 16] {
    for word in words {
        let mut keystream = ChaCha20Rng::from_seed(key);
        keystream.set_stream(word);
        keystream.fill_bytes(&mut key);
    }
    let mut code = [0; 16];
    ChaCha20Rng::from_seed(key).fill_bytes(&mut code);
    code
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenant(name: &str) -> Caller {
        Caller::Tenant(name.into())
    }

    #[test]
    fn a_secret_proves_one_number_of_one_owner_under_one_key() {
        let keys = PlaceKeys::new([[1; 32]].into());
        let owners = [
            Caller::Operator,
            tenant(""),
            tenant("one"),
            tenant("one\0"),
            tenant("eight888"),
            tenant("eight8889"),
        ];
        for owner in &owners {
            let drawn = Capability::from_bytes([5; 16]);
            let secret = keys.secret(JobId(7), owner, drawn);
            let place = JobPlace { job: JobId(7), secret };
            for other in &owners {
                assert_eq!(keys.proves(place, other), owner == other, "{owner:?} {other:?}");
            }
            assert!(!keys.proves(JobPlace { job: JobId(8), secret }, owner));
            assert!(!PlaceKeys::new([[2; 32]].into()).proves(place, owner));
            for at in 0..16 {
                let mut bytes = secret.to_bytes();
                bytes[at] ^= 1;
                let forged = Capability::from_bytes(bytes);
                assert!(!keys.proves(JobPlace { job: JobId(7), secret: forged }, owner), "{at}");
            }
        }
    }

    #[test]
    fn a_key_that_is_replaced_is_recognised_beside_the_next() {
        let old = PlaceKeys::new([[1; 32]].into());
        let both = PlaceKeys::new([[2; 32], [1; 32]].into());
        let place = |keys: &PlaceKeys| JobPlace {
            job: JobId(7),
            secret: keys.secret(JobId(7), &Caller::Operator, Capability::default()),
        };
        assert!(both.proves(place(&old), &Caller::Operator));
        assert!(both.proves(place(&both), &Caller::Operator));
        assert!(!old.proves(place(&both), &Caller::Operator));
    }
}
