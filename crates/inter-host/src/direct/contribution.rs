//! Where a host's contribution lies while an operation runs.
//!
//! Copying it into the vector beforehand would be a pass over memory that nothing needs: until an
//! element is combined with another or replaced, it can be sent, and combined, from where the caller
//! has it.

use arrayvec::ArrayVec;
use tributary_algorithms::Span;

/// Ranges kept apart. Schedules go through a vector from one end, or round a ring, piece by piece: that
/// leaves three.
const RANGES_MAX: usize = 4;

/// The elements that lie at the caller's and not in the vector.
#[derive(Debug, Default)]
pub(super) struct Contribution {
    ranges: ArrayVec<Span, RANGES_MAX>,
}

impl Contribution {
    /// All of `elements` elements.
    pub(super) fn whole(elements: u64) -> Self {
        Self { ranges: [Span { first: 0, elements }].into_iter().collect() }
    }

    /// Whether all of `span` is among them; nothing never is.
    pub(super) fn has_all(&self, span: Span) -> bool {
        let holds = |range: &Span| range.first <= span.first && span.end() <= range.end();
        !span.is_empty() && self.ranges.iter().any(holds)
    }

    /// The first range of `span` that is among them.
    pub(super) fn first_within(&self, span: Span) -> Option<Span> {
        let range = self.ranges.iter().find(|range| range.overlaps(span))?;
        Some(Span::between(range.first.max(span.first), range.end().min(span.end())))
    }

    /// `span` lies in the vector from now on. What is returned has no room here any more, and has to be
    /// copied there, too.
    #[must_use]
    pub(super) fn remove(&mut self, span: Span) -> Option<Span> {
        let mut rest = ArrayVec::new();
        let mut evicted = None;
        for range in &self.ranges {
            let parts = if range.overlaps(span) {
                let before = Span::between(range.first, span.first.max(range.first));
                let behind = Span::between(span.end().min(range.end()), range.end());
                [before, behind]
            } else {
                [*range, Span::default()]
            };
            for part in parts.into_iter().filter(|part| !part.is_empty()) {
                // Only one range can be cut in two.
                evicted = rest.try_push(part).err().map(|full| full.element()).or(evicted);
            }
        }
        self.ranges = rest;
        evicted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ELEMENTS: u64 = 24;

    /// Spans without order, some empty, by a generator of Lehmer's kind.
    fn spans(seed: u64) -> impl Iterator<Item = Span> {
        let mut state = seed;
        let mut next = move || {
            state = state * 48_271 % 0x7FFF_FFFF;
            state % (ELEMENTS + 1)
        };
        std::iter::from_fn(move || {
            let first = next();
            // Mostly short ones: they leave many ranges.
            Some(Span::between(first, (first + next() / 6).min(ELEMENTS)))
        })
    }

    #[test]
    fn an_element_lies_where_the_history_says() {
        let mut evictions = 0;
        for seed in 1..500 {
            let mut contribution = Contribution::whole(ELEMENTS);
            let mut at_callers = [true; ELEMENTS as usize];
            for span in spans(seed).take(12) {
                let evicted = contribution.remove(span);
                evictions += u32::from(evicted.is_some());
                for gone in [Some(span), evicted].into_iter().flatten() {
                    at_callers[gone.first as usize..gone.end() as usize].fill(false);
                }
                for first in 0..ELEMENTS {
                    for end in first + 1..=ELEMENTS {
                        let asked = Span::between(first, end);
                        let expected = &at_callers[first as usize..end as usize];
                        let all = expected.iter().all(|it| *it);
                        assert_eq!(contribution.has_all(asked), all, "seed {seed}, {asked:?}");
                        let found = contribution.first_within(asked);
                        let some = expected.iter().position(|it| *it);
                        assert_eq!(found.map(|it| it.first), some.map(|at| first + at as u64));
                        assert!(found.is_none_or(|it| contribution.has_all(it)));
                    }
                }
            }
        }
        assert!(evictions > 0, "no history had more ranges than are kept");
    }
}
