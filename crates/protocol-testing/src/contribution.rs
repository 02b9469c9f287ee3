//! What members contribute.
//!
//! Every element is drawn from (group, operation, member, position), so that each of them shows in a result.

use half::{bf16, f16};
use tributary_wire::Datatype;

/// A member's vector for one operation.
#[derive(Clone, Copy, Debug)]
pub struct Contribution {
    /// Differs between groups whose data must differ.
    pub tag: u64,
    /// The operation's number in its group.
    pub operation: u32,
    /// Which member.
    pub member: u32,
}

impl Contribution {
    /// Those of all members of a group.
    pub fn of_all(tag: u64, operation: usize, members: u32) -> impl Iterator<Item = Self> + Clone {
        (0..members).map(move |member| Self { tag, operation: operation as u32, member })
    }

    pub(crate) fn word(self, index: u64) -> u64 {
        let place = (u64::from(self.operation) << 40) ^ (u64::from(self.member) << 20) ^ index;
        mix(self.tag ^ mix(place))
    }

    /// All of its elements.
    #[must_use]
    pub fn bytes(self, datatype: Datatype, elements: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.append(datatype, 0, elements, &mut bytes);
        bytes
    }

    /// Appends the elements from `first` to before `end`.
    pub fn append(self, datatype: Datatype, first: u64, end: u64, bytes: &mut Vec<u8>) {
        for index in first..end {
            let word = self.word(index);
            match datatype {
                Datatype::F64 => bytes.extend(number(word).to_le_bytes()),
                Datatype::F32 => bytes.extend((number(word) as f32).to_le_bytes()),
                Datatype::F16 => bytes.extend(f16::from_f64(number(word)).to_le_bytes()),
                Datatype::Bf16 => bytes.extend(bf16::from_f64(number(word)).to_le_bytes()),
                // Even factors would soon make every product zero.
                Datatype::U32 => bytes.extend((word as u32 | 1).to_le_bytes()),
                other => {
                    let raw = [word, mix(word)].map(u64::to_le_bytes);
                    bytes.extend_from_slice(&raw.as_flattened()[..other.size_bytes()]);
                }
            }
        }
    }
}

/// SplitMix64's finalizer (Steele, Lea and Flood, OOPSLA 2014).
pub fn mix(word: u64) -> u64 {
    let mut z = word.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// A number between -1 and 1, times a power of ten between -3 and 3.
fn number(word: u64) -> f64 {
    const SCALES: [f64; 8] = [1e-3, 1e-2, 1e-1, 1.0, 1e1, 1e2, 1e3, 1.0];
    let unit = (word >> 11) as f64 / (1_u64 << 52) as f64 - 1.0;
    unit * SCALES[(word & 7) as usize]
}
