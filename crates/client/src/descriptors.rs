//! Descriptors of the process, most of which are the program's to use.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Descriptors that one communicator takes at most: links, listeners, a segment, and what set-up needs for a moment.
const COMMUNICATOR_MAX: u64 = 8;
/// Descriptors that stay the program's; of a small limit, a quarter.
const RESERVE: u64 = 256;
/// By how many the limit is raised at a time. A program that waits with `select` can't use numbers beyond 1,023, so the limit
/// grows with what is in use, and not at once.
const STEP: u64 = 256;

/// Sees to it that a communicator can be set up and the program has room left. Raises the process's limit where the system
/// allows that.
///
/// # Errors
/// If too few descriptors would be left to the program, in words for its report.
pub(crate) fn make_room() -> Result<(), String> {
    // Without /proc nothing is known, and the system itself says when there is no room.
    let Ok(open) = std::fs::read_dir("/proc/self/fd") else { return Ok(()) };
    let used = open.count() as u64;
    let limits = getrlimit(Resource::Nofile);
    // No limit.
    let Some(limit) = limits.current else { return Ok(()) };
    let is_there = match limit_for(used, limit, limits.maximum) {
        Some(wanted) if wanted == limit => true,
        Some(raised) => {
            setrlimit(Resource::Nofile, Rlimit { current: Some(raised), ..limits }).is_ok()
        }
        None => false,
    };
    let problem = || {
        format!(
            "{used} of {limit} descriptors are in use, and the others are left to the program (ulimit -n)"
        )
    };
    is_there.then_some(()).ok_or_else(problem)
}

/// Whether so many descriptors are in use that a communicator should do with few: one for every other host of a group is too many.
pub(crate) fn are_scarce() -> bool {
    let Ok(open) = std::fs::read_dir("/proc/self/fd") else { return false };
    let limits = getrlimit(Resource::Nofile);
    limits.maximum.or(limits.current).is_some_and(|most| open.count() as u64 > most / 4)
}

/// The limit with which a process that uses so many descriptors has room: the one it has, or a higher one; none if that is
/// more than the most it may have.
fn limit_for(used: u64, limit: u64, maximum: Option<u64>) -> Option<u64> {
    let wanted = used + COMMUNICATOR_MAX + RESERVE.min(limit / 4);
    if wanted <= limit {
        return Some(limit);
    }
    let raised = maximum.map_or(wanted + STEP, |maximum| maximum.min(wanted + STEP));
    (raised >= wanted).then_some(raised)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_with_few_descriptors_has_room() {
        assert_eq!(make_room(), Ok(()));
    }

    #[test]
    fn what_is_left_to_the_program_is_kept_and_a_limit_raised_only_where_it_may_be() {
        let most_without_raising = 1024 - COMMUNICATOR_MAX - RESERVE;
        for maximum in [Some(1024), Some(1 << 20), None] {
            assert_eq!(limit_for(most_without_raising, 1024, maximum), Some(1024));
        }
        assert_eq!(limit_for(most_without_raising + 1, 1024, Some(1024)), None);
        assert_eq!(limit_for(most_without_raising + 1, 1024, Some(1025)), Some(1025));
        for maximum in [Some(1 << 20), None] {
            assert_eq!(limit_for(most_without_raising + 1, 1024, maximum), Some(1025 + STEP));
        }
        // Of a small limit a quarter.
        assert_eq!(limit_for(40, 64, Some(64)), Some(64));
        assert_eq!(limit_for(41, 64, Some(64)), None);
    }
}
