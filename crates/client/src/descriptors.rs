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
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    // No limit.
    let Some(limit) = current else { return Ok(()) };
    let wanted = used + COMMUNICATOR_MAX + RESERVE.min(limit / 4);
    if wanted <= limit {
        return Ok(());
    }
    let raised = maximum.map_or(wanted + STEP, |maximum| maximum.min(wanted + STEP));
    if raised >= wanted
        && setrlimit(Resource::Nofile, Rlimit { current: Some(raised), maximum }).is_ok()
    {
        return Ok(());
    }
    Err(format!(
        "{used} of {limit} descriptors are in use, and the others are left to the program (ulimit -n)"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_with_few_descriptors_has_room() {
        assert_eq!(make_room(), Ok(()));
    }
}
