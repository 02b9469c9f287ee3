//! Authenticated frames: a code over header and payload behind every frame, as a stand-in for that
//! of `transport`. A sender without the key makes no code.

use tributary_protocol_testing::values::mix;

use super::world::World;

const CODE_BYTES: usize = 8;

/// Separates the key from all other numbers of a seed.
const KEY_SEED: u64 = 0x6b65_7921;

impl World<'_> {
    /// Puts a code behind a frame, if the scenario's frames are authenticated.
    pub(super) fn seal(&self, bytes: &mut Vec<u8>) {
        if self.scenario.is_authenticated {
            let code = code(self.scenario.seed, bytes);
            bytes.extend_from_slice(&code);
        }
    }

    /// What lies before a frame's code; none if the code is not that of the frame.
    pub(super) fn unseal<'a>(&self, bytes: &'a [u8]) -> Option<&'a [u8]> {
        if !self.scenario.is_authenticated {
            return Some(bytes);
        }
        let (frame, shown) = bytes.split_at_checked(bytes.len().checked_sub(CODE_BYTES)?)?;
        (code(self.scenario.seed, frame) == shown).then_some(frame)
    }
}

fn code(seed: u64, frame: &[u8]) -> [u8; CODE_BYTES] {
    #[cfg(feature = "planted-bugs")]
    let frame = bytes_covered(frame);
    let absorb = |state: u64, byte: &u8| mix(state ^ u64::from(*byte));
    frame.iter().fold(mix(seed ^ KEY_SEED), absorb).to_le_bytes()
}

/// One of the bugs that the swarm has to find.
#[cfg(feature = "planted-bugs")]
fn bytes_covered(frame: &[u8]) -> &[u8] {
    use tributary_protocol::planted::{Bug, is_planted};
    let header_bytes = frame.len().min(tributary_wire::frame::HEADER_BYTES);
    if is_planted(Bug::CodeOfHeader) { &frame[..header_bytes] } else { frame }
}
