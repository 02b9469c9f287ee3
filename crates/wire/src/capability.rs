//! The right to contribute to and read from one group as one child.

use core::fmt;

/// 128 unguessable bits that the manager binds to one group, epoch and child.
///
/// Compared in constant time and never printed, so neither timing nor a log gives it away.
#[derive(Clone, Copy, Default)]
pub struct Capability([u8; 16]);

impl Capability {
    /// Wraps bits drawn by the manager.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// The bits, for the frame that carries them.
    #[must_use]
    pub const fn to_bytes(self) -> [u8; 16] {
        self.0
    }
}

impl PartialEq for Capability {
    fn eq(&self, other: &Self) -> bool {
        let ours = u128::from_ne_bytes(self.0);
        let theirs = u128::from_ne_bytes(other.0);
        // A single exclusive-or over the whole value takes the same time wherever the first
        // differing bit lies.
        (ours ^ theirs) == 0
    }
}

impl Eq for Capability {}

impl fmt::Debug for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Capability(..)")
    }
}

#[cfg(feature = "control")]
crate::hex::as_hex_digits!(Capability, "a capability is 32 hexadecimal digits");

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;

    #[test]
    fn equality_sees_every_byte() {
        let whole = Capability::from_bytes([7; 16]);
        for at in 0..16 {
            let mut bytes = [7; 16];
            bytes[at] ^= 1;
            assert_ne!(whole, Capability::from_bytes(bytes));
        }
        assert_eq!(whole, Capability::from_bytes([7; 16]));
    }

    #[test]
    fn debug_does_not_leak() {
        assert_eq!(format!("{:?}", Capability::from_bytes([0xAB; 16])), "Capability(..)");
    }
}
