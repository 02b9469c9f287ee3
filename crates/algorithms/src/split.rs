//! Ranges of elements, and their even division.

/// A range of elements of a vector, or of ranks of a communicator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Span {
    /// The first one.
    pub first: u64,
    /// How many.
    pub elements: u64,
}

impl Span {
    /// The range `first..end`.
    ///
    /// # Panics
    /// If `end` lies before `first`.
    #[must_use]
    pub const fn between(first: u64, end: u64) -> Self {
        assert!(first <= end);
        Self { first, elements: end - first }
    }

    /// The position after the last element.
    #[must_use]
    pub const fn end(self) -> u64 {
        self.first + self.elements
    }

    /// Whether it has no element.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.elements == 0
    }

    /// Whether some element is in both.
    #[must_use]
    pub const fn overlaps(self, other: Self) -> bool {
        !self.is_empty()
            && !other.is_empty()
            && self.first < other.end()
            && other.first < self.end()
    }

    /// The lower or the upper half. The lower one of an odd range is the shorter.
    #[must_use]
    pub(crate) const fn half(self, upper: bool) -> Self {
        let lower = self.elements / 2;
        if upper {
            Self { first: self.first + lower, elements: self.elements - lower }
        } else {
            Self { first: self.first, elements: lower }
        }
    }
}

/// `total` elements divided into `parts` neighbouring parts whose lengths differ by one at most,
/// the longer ones first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Split {
    total: u64,
    parts: u64,
}

impl Split {
    /// Divides `total` elements into `parts`.
    ///
    /// # Panics
    /// If `parts` is zero.
    #[must_use]
    pub const fn new(total: u64, parts: u64) -> Self {
        assert!(parts > 0, "nothing can be divided into no parts");
        Self { total, parts }
    }

    /// Where part `index` lies.
    ///
    /// # Panics
    /// If there is no such part.
    #[must_use]
    pub fn part(self, index: u64) -> Span {
        assert!(index < self.parts, "part {index} of {}", self.parts);
        self.range(index, index + 1)
    }

    /// Where the neighbouring parts `from..to` lie.
    pub(crate) fn range(self, from: u64, to: u64) -> Span {
        Span::between(self.start(from), self.start(to))
    }

    /// The part that position `position` lies in.
    pub(crate) fn part_of(self, position: u64) -> u64 {
        debug_assert!(position < self.total);
        let (short, longer) = (self.total / self.parts, self.total % self.parts);
        let in_longer = longer * (short + 1);
        if position < in_longer {
            position / (short + 1)
        } else {
            longer + (position - in_longer) / short
        }
    }

    fn start(self, index: u64) -> u64 {
        let (short, longer) = (self.total / self.parts, self.total % self.parts);
        index * short + index.min(longer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_tile_the_whole_and_differ_by_one_at_most() {
        for total in 0..40 {
            for parts in 1..20 {
                let split = Split::new(total, parts);
                let mut next = 0;
                for index in 0..parts {
                    let part = split.part(index);
                    assert_eq!(part.first, next);
                    assert!(part.elements == total / parts || part.elements == total / parts + 1);
                    for position in part.first..part.end() {
                        assert_eq!(split.part_of(position), index);
                    }
                    next = part.end();
                }
                assert_eq!(next, total);
            }
        }
    }

    #[test]
    fn halves_meet_and_empty_spans_overlap_nothing() {
        let span = Span::between(3, 10);
        assert_eq!(span.half(false).end(), span.half(true).first);
        assert_eq!(span.half(true).end(), 10);
        assert!(span.overlaps(Span::between(9, 12)));
        assert!(!span.overlaps(Span::between(10, 12)));
        assert!(!span.overlaps(Span::between(5, 5)));
    }
}
