//! The trace of a run: always as a hash, and as text if it is wanted.

use super::fault_record::Key;
use tributary_protocol_testing::values::mix;

/// The trace of one run.
pub(super) struct Trace {
    hash: u64,
    lines: Option<Vec<Line>>,
}

/// One line of the trace.
#[derive(Clone, Debug)]
pub(super) struct Line {
    pub(super) at_ns: u64,
    /// Its group; none if it concerns all.
    pub(super) group: Option<Key>,
    pub(super) text: String,
}

impl Trace {
    pub(super) fn new(keeps_lines: bool) -> Self {
        Self { hash: 0, lines: keeps_lines.then(Vec::new) }
    }

    /// The hash of everything that was noted.
    pub(super) fn hash(&self) -> u64 {
        self.hash
    }

    pub(super) fn into_lines(self) -> Vec<Line> {
        self.lines.unwrap_or_default()
    }

    pub(super) fn note_number(&mut self, number: u64) {
        self.hash = mix(self.hash ^ number);
    }

    pub(super) fn note_bytes(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        let mut hash = self.hash;
        for word in words {
            hash = (hash.rotate_left(5) ^ u64::from_le_bytes(*word))
                .wrapping_mul(0x9E37_79B9_7F4A_7C15);
        }
        for byte in rest {
            hash = (hash.rotate_left(5) ^ u64::from(*byte)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        }
        self.hash = mix(hash);
    }

    /// Adds a line. Its text is made only if it is wanted.
    pub(super) fn note(&mut self, at_ns: u64, group: Option<Key>, text: impl FnOnce() -> String) {
        if let Some(lines) = &mut self.lines {
            lines.push(Line { at_ns, group, text: text() });
        }
    }
}
