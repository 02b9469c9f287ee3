//! Limits of a link over shared memory.

use tributary_wire::frame::PAYLOAD_BYTES_MAX;

use super::ring::{LINE_BYTES, record_bytes};
use crate::OptionsError;

/// Largest ring: it holds a dozen of the longest frames.
pub const RING_BYTES_MAX: usize = 16 << 20;

/// Smallest default ring. It holds 500 short frames and stays in a core's own cache.
const RING_BYTES_DEFAULT: usize = 64 << 10;

/// Limits of a link over shared memory. Its memory is two rings and a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShmOptions {
    payload_max_bytes: u32,
    ring_bytes: usize,
}

impl ShmOptions {
    /// Options for payloads up to `payload_max_bytes`, with rings that hold at least four of them.
    ///
    /// # Errors
    /// If no frame is that long.
    pub fn new(payload_max_bytes: u32) -> Result<Self, OptionsError> {
        if payload_max_bytes as usize > PAYLOAD_BYTES_MAX {
            return Err(OptionsError::PayloadMax { payload_max_bytes });
        }
        let four = LINE_BYTES + 4 * record_bytes(payload_max_bytes as usize);
        let ring_bytes = four.max(RING_BYTES_DEFAULT).next_power_of_two();
        Ok(Self { payload_max_bytes, ring_bytes })
    }

    /// The same with rings of `ring_bytes` each. A connector makes rings of this size, a listener
    /// takes them up to this size.
    ///
    /// # Errors
    /// If `ring_bytes` is no power of two, can't hold two of the longest frames, is less than a page
    /// of memory, or is more than [`RING_BYTES_MAX`].
    pub fn with_ring_bytes(self, ring_bytes: usize) -> Result<Self, OptionsError> {
        let min_bytes = self.ring_bytes_min();
        let fits = (min_bytes..=RING_BYTES_MAX).contains(&ring_bytes);
        if !fits || !ring_bytes.is_power_of_two() {
            return Err(OptionsError::RingBytes {
                ring_bytes,
                min_bytes,
                max_bytes: RING_BYTES_MAX,
            });
        }
        Ok(Self { ring_bytes, ..self })
    }

    /// Longest payload.
    #[must_use]
    pub const fn payload_max_bytes(&self) -> u32 {
        self.payload_max_bytes
    }

    /// Size of each of the two rings.
    #[must_use]
    pub const fn ring_bytes(&self) -> usize {
        self.ring_bytes
    }

    /// The smallest ring: two of the longest frames and the ready word after them.
    pub(super) fn ring_bytes_min(&self) -> usize {
        let two = LINE_BYTES + 2 * record_bytes(self.payload_max_bytes as usize);
        two.max(rustix::param::page_size()).next_power_of_two()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_hold_four_frames_and_fit_the_largest_ring() {
        for payload_max_bytes in [0, 8, 256, 4096, 65_536, PAYLOAD_BYTES_MAX as u32] {
            let options = ShmOptions::new(payload_max_bytes).unwrap();
            assert!(options.ring_bytes() > 4 * (64 + payload_max_bytes as usize));
            assert!(options.ring_bytes() <= RING_BYTES_MAX);
            assert_eq!(options.with_ring_bytes(options.ring_bytes()), Ok(options));
        }
    }

    #[test]
    fn impossible_sizes_are_refused() {
        let too_long = PAYLOAD_BYTES_MAX as u32 + 1;
        assert_eq!(
            ShmOptions::new(too_long),
            Err(OptionsError::PayloadMax { payload_max_bytes: too_long })
        );
        let options = ShmOptions::new(4096).unwrap();
        for ring_bytes in [0, 8192, (64 << 10) + 1, 3 << 15, 2 * RING_BYTES_MAX, usize::MAX] {
            assert!(
                matches!(options.with_ring_bytes(ring_bytes), Err(OptionsError::RingBytes { .. })),
                "{ring_bytes}"
            );
        }
    }
}
