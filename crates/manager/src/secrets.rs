//! Unguessable bits, all drawn from one seed.

use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use tributary_wire::{Capability, FrameKey};

/// Draws capabilities, job secrets and keys.
pub(super) struct Secrets(ChaCha20Rng);

impl Secrets {
    pub(super) fn new(seed: [u8; 32]) -> Self {
        Self(ChaCha20Rng::from_seed(seed))
    }

    /// 128 bits that were not given out before.
    pub(super) fn draw(&mut self) -> Capability {
        Capability::from_bytes(self.bytes())
    }

    /// A key that no group had before.
    pub(super) fn draw_key(&mut self) -> FrameKey {
        FrameKey::from_bytes(self.bytes())
    }

    /// The key under which jobs prove their places to this manager alone.
    pub(super) fn draw_place_key(&mut self) -> [u8; 32] {
        self.bytes()
    }

    fn bytes<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        self.0.fill_bytes(&mut bytes);
        bytes
    }
}
