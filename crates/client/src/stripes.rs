//! Stripes: parts of one long vector that go through trees with different roots, all at once.
//!
//! Owns which vectors are cut, where, and what is said of it in the report. A function of the
//! operation and of what the communicator was granted, equal at all its ranks. Knows nothing of
//! trees.

use std::ops::Range;

use tributary_wire::Operator;

/// Fewest hosts with which a communicator asks for more than one tree: with two, each node has a
/// child or two, and nothing to spread.
pub(crate) const HOSTS_MIN: usize = 3;

/// What became of a communicator's wish for stripes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stripes {
    /// Trees asked for; at most one is no wish.
    pub(crate) asked: u32,
    /// Trees it has.
    pub(crate) trees: u32,
    /// Shortest vector that is cut, in bytes.
    pub(crate) min_bytes: u64,
    /// Why it has fewer than it asked for; empty if it doesn't.
    pub(crate) note: String,
}

impl Stripes {
    /// Into how many parts a vector of `len_bytes` is cut. Only reductions are: what is copied to
    /// everyone has nothing to reduce at a root.
    pub(crate) fn of(&self, operator: Operator, elements: u64, len_bytes: usize) -> usize {
        let is_cut =
            self.trees > 1 && operator.is_reduction() && len_bytes as u64 >= self.min_bytes;
        // No part is empty.
        if is_cut { u64::from(self.trees).min(elements) as usize } else { 1 }
    }
}

/// The elements of one of `stripes` parts, which differ in length by one at most.
pub(crate) fn cut(elements: u64, stripes: usize, stripe: usize) -> Range<u64> {
    let bound = |index: usize| {
        let whole = u128::from(elements) * index as u128 / stripes as u128;
        u64::try_from(whole).expect("a part is no longer than the whole")
    };
    bound(stripe)..bound(stripe + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_even_and_cover_the_vector() {
        for elements in [2_u64, 3, 7, 4096, 65_537, u64::MAX] {
            for stripes in 1..=4_usize.min(elements as usize) {
                let parts: Vec<_> =
                    (0..stripes).map(|stripe| cut(elements, stripes, stripe)).collect();
                assert_eq!((parts[0].start, parts[stripes - 1].end), (0, elements));
                assert!(parts.windows(2).all(|pair| pair[0].end == pair[1].start), "{parts:?}");
                let lengths = parts.iter().map(|part| part.end - part.start);
                let (least, most) = (lengths.clone().min().unwrap(), lengths.max().unwrap());
                assert!(least > 0 && most - least <= 1, "{parts:?}");
            }
        }
    }

    #[test]
    fn long_reductions_are_cut_and_nothing_else() {
        let stripes = Stripes { asked: 4, trees: 3, min_bytes: 16, note: String::new() };
        let of = |operator, elements: u64| stripes.of(operator, elements, elements as usize * 8);
        assert_eq!([1, 2, 3, 100].map(|elements| of(Operator::Sum, elements)), [1, 2, 3, 3]);
        assert_eq!(of(Operator::Broadcast, 100), 1);
        assert_eq!(of(Operator::Barrier, 0), 1);
        assert_eq!(Stripes::default().of(Operator::Sum, 100, 800), 1);
    }
}
