//! The choices that an input makes: one after the other, zeros after its end.

/// What is left of an input.
pub(crate) struct Choices<'a> {
    pub(crate) bytes: &'a [u8],
}

impl Choices<'_> {
    pub(crate) fn byte(&mut self) -> u8 {
        let Some((&first, rest)) = self.bytes.split_first() else { return 0 };
        self.bytes = rest;
        first
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        let word = usize::from(self.byte()) << 8 | usize::from(self.byte());
        word % bound.max(1)
    }

    pub(crate) fn of<'t>(&mut self, all: &[&'t str]) -> &'t str {
        all[self.below(all.len())]
    }

    pub(crate) fn is_at_end(&self) -> bool {
        self.bytes.is_empty()
    }

    /// A good text with pieces cut out, repeated, or replaced by one of `words`.
    pub(crate) fn spoil(&mut self, text: &str, words: &[&str]) -> String {
        let mut bytes = text.as_bytes().to_vec();
        while !self.is_at_end() {
            let at = self.below(bytes.len() + 1);
            let end = (at + self.below(24)).min(bytes.len());
            match self.below(4) {
                0 => drop(bytes.drain(at..end)),
                1 => drop(bytes.splice(at..end, self.of(words).bytes())),
                2 => {
                    let piece = bytes[at..end].to_vec();
                    let to = self.below(bytes.len() + 1);
                    drop(bytes.splice(to..to, piece));
                }
                _ if at < bytes.len() => bytes[at] = self.byte(),
                _ => {}
            }
        }
        String::from_utf8_lossy(&bytes).into_owned()
    }
}
