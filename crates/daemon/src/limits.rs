//! Resource limits of a daemon's process.

use std::io;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the limit on open files to the hard limit, because every child of an aggregator and every job of
/// a manager needs a descriptor. Returns the new limit, or `None` if there is none. For daemons
/// that have a process of their own: child processes inherit the limit, and some programs can't
/// handle descriptors beyond 1,023 (`select`).
///
/// # Errors
/// If the system refuses.
pub fn raise_open_files() -> io::Result<Option<u64>> {
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })?;
    }
    Ok(limit.maximum)
}

/// Descriptors that the aggregator's end of a link takes: one over TCP; over shared memory the segment, the connection,
/// and what wakes each side.
const DESCRIPTORS_PER_LINK: usize = 4;
/// Descriptors that are left for the manager's connections and for connectors that wait for their greeting. Without them
/// an aggregator could neither accept a link nor report that it can't.
const RESERVE: usize = 64;

/// The process has too few descriptors for another group.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error(
    "{used} of the aggregator's {limit} descriptors are in use, and the group's {links} links need more \
     (LimitNOFILE of its unit, or ulimit -n)"
)]
pub(crate) struct NoDescriptors {
    used: usize,
    limit: usize,
    links: usize,
}

/// Checks that a group with so many links can have them and leaves the reserve.
pub(crate) fn check_descriptors(links: usize) -> Result<(), NoDescriptors> {
    // Without a limit, or without /proc to count, the system itself says when there is no room.
    let limit = getrlimit(Resource::Nofile).current.and_then(|limit| usize::try_from(limit).ok());
    let (Some(limit), Ok(open)) = (limit, std::fs::read_dir("/proc/self/fd")) else {
        return Ok(());
    };
    let used = open.count();
    let free = limit.saturating_sub(used).saturating_sub(RESERVE.min(limit / 4));
    if links.saturating_mul(DESCRIPTORS_PER_LINK) <= free {
        Ok(())
    } else {
        Err(NoDescriptors { used, limit, links })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_the_hard_one_afterwards() {
        let hard = getrlimit(Resource::Nofile).maximum;
        assert_eq!(raise_open_files().unwrap(), hard);
        assert_eq!(getrlimit(Resource::Nofile), Rlimit { current: hard, maximum: hard });
    }

    #[test]
    fn a_group_with_more_links_than_descriptors_is_refused() {
        assert_eq!(check_descriptors(1), Ok(()));
        let refused = check_descriptors(usize::MAX).unwrap_err();
        assert!(refused.to_string().contains("ulimit -n"), "{refused}");
    }
}
