//! What the system lets a daemon have.

use std::io;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the number of files this process may have open to the most it may ask for: every child of
/// a node and every job of a manager is a descriptor. Returns that number, or `None` where there is
/// no limit. For daemons of their own: children inherit it, and not every program bears numbers
/// beyond 1,023 (`select`).
///
/// # Errors
/// If the system refuses, which it may not for a number up to the hard limit.
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
