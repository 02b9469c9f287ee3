//! The names under which a fabric may list a host.

use tributary_wire::host::machine_of;

/// The names under which a description may list `host`, best first: as it is; without the `#i` of
/// a machine that acts as several hosts; without the domain.
pub(crate) fn spellings(host: &str) -> impl Iterator<Item = &str> {
    let machine = machine_of(host);
    let short = machine.split_once('.').map_or(machine, |(name, _)| name);
    let mut last = "";
    [host, machine, short]
        .into_iter()
        .filter(move |name| core::mem::replace(&mut last, name) != *name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn spellings_go_from_exact_to_short() {
        let all = |host| spellings(host).collect::<Vec<_>>();
        assert_eq!(all("n1.cluster#3"), ["n1.cluster#3", "n1.cluster", "n1"]);
        assert_eq!(all("n1#0"), ["n1#0", "n1"]);
        assert_eq!(all("n1"), ["n1"]);
    }
}
