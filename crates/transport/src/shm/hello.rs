//! The greeting that a connector sends with its memory, and the listener's checks.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{SealFlags, fcntl_get_seals, fstat, fstatfs};

use super::ShmOptions;
use super::memory::{Mapping, file_bytes};
use crate::HandshakeError;

/// Length of the greeting.
pub(super) const HELLO_BYTES: usize = 32;

const MAGIC: [u8; 8] = *b"TRIBSHM\n";
/// Version of the greeting and of the layout of the shared memory.
const VERSION: u32 = 1;

/// `f_type` of shared memory made of ordinary pages. Memory of huge pages is refused: reading it
/// can kill the reader when the system runs out of them.
const TMPFS_MAGIC: u64 = 0x0102_1994;

/// Seals that no later call can remove: the file keeps its size, so no access can fault.
pub(super) const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

/// The connector's description of its memory.
///
/// ```text
/// 0  magic[8]   8  version u32   12  payload_max_bytes u32   16  ring_bytes u64   24  zero[8]
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hello {
    pub(super) payload_max_bytes: u32,
    pub(super) ring_bytes: u64,
}

impl Hello {
    pub(super) fn encode(self) -> [u8; HELLO_BYTES] {
        let mut bytes = [0; HELLO_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.payload_max_bytes.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.ring_bytes.to_le_bytes());
        bytes
    }

    pub(super) fn decode(bytes: &[u8; HELLO_BYTES]) -> Result<Self, HandshakeError> {
        let [m0, m1, m2, m3, m4, m5, m6, m7, v0, v1, v2, v3, p0, p1, p2, p3, rest @ ..] = *bytes;
        let [r0, r1, r2, r3, r4, r5, r6, r7, reserved @ ..] = rest;
        if [m0, m1, m2, m3, m4, m5, m6, m7] != MAGIC {
            return Err(HandshakeError::BadMagic);
        }
        let version = u32::from_le_bytes([v0, v1, v2, v3]);
        if version != VERSION || reserved != [0; 8] {
            return Err(HandshakeError::BadVersion(version));
        }
        Ok(Self {
            payload_max_bytes: u32::from_le_bytes([p0, p1, p2, p3]),
            ring_bytes: u64::from_le_bytes([r0, r1, r2, r3, r4, r5, r6, r7]),
        })
    }

    /// Checks the greeting against the listener's limits. Returns the longest payload of the link
    /// and its ring size. The lower of both sides' payload limits holds, because a group may be
    /// granted shorter payloads than its aggregator allows.
    fn check(self, options: &ShmOptions) -> Result<(u32, usize), HandshakeError> {
        let payload_max_bytes = self.payload_max_bytes.min(options.payload_max_bytes());
        let least = ShmOptions::new(payload_max_bytes).unwrap_or(*options);
        let (min_bytes, max_bytes) = (least.ring_bytes_min(), options.ring_bytes());
        usize::try_from(self.ring_bytes)
            .ok()
            .filter(|bytes| (min_bytes..=max_bytes).contains(bytes) && bytes.is_power_of_two())
            .map(|ring_bytes| (payload_max_bytes, ring_bytes))
            .ok_or(HandshakeError::RingBytes { ring_bytes: self.ring_bytes, min_bytes, max_bytes })
    }
}

/// Checks a connector's greeting and memory, and maps the memory. Also returns the longest payload
/// that both sides carry.
pub(super) fn admit(
    hello: &[u8; HELLO_BYTES],
    memory: &OwnedFd,
    options: &ShmOptions,
) -> Result<(Arc<Mapping>, u32), HandshakeError> {
    let (payload_max_bytes, ring_bytes) = Hello::decode(hello)?.check(options)?;
    // A descriptor that isn't shared memory has no seals, and asking fails.
    let seals = fcntl_get_seals(memory).map_err(|_| HandshakeError::NotSealedMemory)?;
    let system = fstatfs(memory).map_err(|_| HandshakeError::NotSealedMemory)?;
    if !seals.contains(SEALS) || system.f_type as u64 != TMPFS_MAGIC {
        return Err(HandshakeError::NotSealedMemory);
    }
    let status = fstat(memory).map_err(|error| HandshakeError::Map(error.into()))?;
    let got_bytes = u64::try_from(status.st_size).unwrap_or(0);
    let need_bytes = file_bytes(ring_bytes);
    if got_bytes != need_bytes {
        return Err(HandshakeError::MemoryBytes { got_bytes, need_bytes });
    }
    Mapping::new(memory.as_fd(), ring_bytes)
        .map(|mapping| (Arc::new(mapping), payload_max_bytes))
        .map_err(|error| HandshakeError::Map(error.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn greeting_survives_its_encoding() {
        let hello = Hello { payload_max_bytes: 4096, ring_bytes: 1 << 20 };
        assert_eq!(Hello::decode(&hello.encode()), Ok(hello));
    }

    #[test]
    fn every_byte_of_the_greeting_is_checked() {
        let options = ShmOptions::new(4096).unwrap();
        let hello = Hello { payload_max_bytes: 4096, ring_bytes: options.ring_bytes() as u64 };
        let good = hello.encode();
        assert!(Hello::decode(&good).and_then(|hello| hello.check(&options)).is_ok());
        for at in 0..HELLO_BYTES {
            let mut bad = good;
            bad[at] ^= 0x80;
            let verdict = Hello::decode(&bad).and_then(|hello| hello.check(&options));
            // Any limit of the connector's will do: the lower of the two holds.
            let is_limit = (12..16).contains(&at);
            assert_eq!(verdict.is_ok(), is_limit, "byte {at}: {verdict:?}");
        }
    }
}
