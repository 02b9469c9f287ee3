//! The secret that authenticates the frames of one group.

use core::fmt;

/// 128 unguessable bits that the manager draws for one group and epoch, where frames are authenticated.
///
/// Unlike a capability it never travels with the frames: it comes with grants and installs, and is
/// never printed. What is made of it: `docs/wire.md`, *Authenticated frames*.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct FrameKey([u8; 16]);

impl FrameKey {
    /// Wraps bits drawn by the manager.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// The bits, for code that makes and checks codes.
    #[must_use]
    pub const fn to_bytes(self) -> [u8; 16] {
        self.0
    }
}

impl fmt::Debug for FrameKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FrameKey(..)")
    }
}

#[cfg(feature = "control")]
crate::hex::as_hex_digits!(FrameKey, "a frame key is 32 hexadecimal digits");

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;

    #[test]
    fn debug_does_not_leak() {
        assert_eq!(format!("{:?}", FrameKey::from_bytes([0xAB; 16])), "FrameKey(..)");
    }
}
