//! The trace of a run: always as a hash, and as text if it is wanted.

pub(super) struct Trace {
    hash: u64,
    lines: Option<Vec<String>>,
}

impl Trace {
    pub(super) fn new(keeps_lines: bool) -> Self {
        Self { hash: 0, lines: keeps_lines.then(Vec::new) }
    }

    pub(super) fn hash(&self) -> u64 {
        self.hash
    }

    pub(super) fn into_lines(self) -> Vec<String> {
        self.lines.unwrap_or_default()
    }

    pub(super) fn note_number(&mut self, number: u64) {
        // The golden ratio's multiplier: it spreads what differs in few bits.
        self.hash = (self.hash.rotate_left(5) ^ number).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }

    /// Adds a line. Its text is made only if it is wanted.
    pub(super) fn note(&mut self, at_ns: u64, text: impl FnOnce() -> String) {
        if let Some(lines) = &mut self.lines {
            lines.push(format!("{at_ns:>12} {}", text()));
        }
    }
}
