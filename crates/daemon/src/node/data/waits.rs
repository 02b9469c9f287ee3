//! How long groups have been waiting for the same thing.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use tributary_protocol::node::{Wait, WaitsFor};
use tributary_wire::control::GroupWait;
use tributary_wire::{Epoch, GroupId, OperationNumber};

/// Shorter waits are not worth a word.
const WAIT_MIN: Duration = Duration::from_secs(1);

/// Most waits that are told of at once.
const WAITS_MAX: usize = 1024;

/// What groups waited for when they were last surveyed, and since when they are known to.
#[derive(Default)]
pub(super) struct Waits {
    known: HashMap<(GroupId, Epoch), (WaitsFor, Instant)>,
}

impl Waits {
    /// Takes note of what groups wait for now. The waits that have lasted.
    pub(super) fn survey(
        &mut self,
        now: Instant,
        waits: impl Iterator<Item = Wait>,
    ) -> Vec<GroupWait> {
        let before = std::mem::take(&mut self.known);
        let mut lasting = Vec::new();
        for Wait { group, epoch, for_what, missing } in waits {
            let since = match before.get(&(group, epoch)) {
                Some((known, since)) if *known == for_what => *since,
                _ => now,
            };
            self.known.insert((group, epoch), (for_what, since));
            let waited = now - since;
            if waited >= WAIT_MIN && lasting.len() < WAITS_MAX {
                let waited_ms = waited.as_millis() as u64;
                let operation = operation_of(for_what);
                lasting.push(GroupWait { group, epoch, operation, waited_ms, missing });
            }
        }
        lasting
    }
}

/// Which operation of its group it is, from 1 on.
fn operation_of(for_what: WaitsFor) -> Option<u32> {
    match for_what {
        WaitsFor::Members => None,
        WaitsFor::Operation { operation, .. } => {
            Some(operation.0.wrapping_sub(OperationNumber::FIRST.0).wrapping_add(1))
        }
    }
}

#[cfg(test)]
mod tests {
    use tributary_wire::ChildIndex;

    use super::*;

    fn wait(number: u32, part: u32, missing: &[u16]) -> Wait {
        let operation = OperationNumber(OperationNumber::FIRST.0.wrapping_add(number));
        Wait {
            group: GroupId(3),
            epoch: Epoch(9),
            for_what: WaitsFor::Operation { operation, part },
            missing: missing.iter().copied().map(ChildIndex).collect(),
        }
    }

    #[test]
    fn only_the_same_wait_lasts() {
        let mut waits = Waits::default();
        let start = Instant::now();
        let mut told = |ms: u64, wait: Wait| {
            let lasting = waits.survey(start + Duration::from_millis(ms), [wait].into_iter());
            lasting.first().map(|it| (it.operation, it.waited_ms, it.missing.len()))
        };
        assert_eq!(told(0, wait(300, 5, &[0, 1])), None);
        assert_eq!(told(999, wait(300, 5, &[0])), None);
        assert_eq!(told(1000, wait(300, 5, &[0])), Some((Some(301), 1000, 1)));
        assert_eq!(told(2000, wait(300, 6, &[0])), None, "it is another part");
        assert_eq!(told(3000, wait(300, 6, &[0])), Some((Some(301), 1000, 1)));
        assert!(waits.survey(start + Duration::from_secs(4), std::iter::empty()).is_empty());
        let again = waits.survey(start + Duration::from_secs(5), [wait(300, 6, &[])].into_iter());
        assert!(again.is_empty(), "it waited for nothing meanwhile");
    }

    #[test]
    fn what_is_told_is_bounded() {
        let mut waits = Waits::default();
        let start = Instant::now();
        let many = || (0..3000).map(|id| Wait { group: GroupId(id), ..wait(1, 1, &[0]) });
        assert!(waits.survey(start, many()).is_empty());
        assert_eq!(waits.survey(start + WAIT_MIN, many()).len(), WAITS_MAX);
    }
}
