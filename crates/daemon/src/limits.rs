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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_the_hard_one_afterwards() {
        let hard = getrlimit(Resource::Nofile).maximum;
        assert_eq!(raise_open_files().unwrap(), hard);
        assert_eq!(getrlimit(Resource::Nofile), Rlimit { current: hard, maximum: hard });
    }
}
