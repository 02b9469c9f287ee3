//! The kernel's table of neighbours (arp(7)), which all networks of a machine share.

/// Entries that the kernel keeps at most.
const LIMIT: &str = "/proc/sys/net/ipv4/neigh/default/gc_thresh3";

/// What to do before so many members all speak with each other, if the kernel keeps too few neighbours for that: it
/// then drops packets, and connections time out. None where it keeps enough, or does not say.
#[must_use]
pub fn shortage(members: u64) -> Option<String> {
    let limit = std::fs::read_to_string(LIMIT).ok()?.trim().parse().ok()?;
    shortage_of(members, limit)
}

fn shortage_of(members: u64, limit: u64) -> Option<String> {
    let needed = members * members.saturating_sub(1);
    (needed > limit).then(|| {
        format!(
            "{members} members that all speak with each other have {needed} neighbours, and this machine keeps \
             {limit}; beyond, connections time out: sysctl -w net.ipv4.neigh.default.gc_thresh3={needed}"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::shortage_of;

    #[test]
    fn a_lab_that_has_more_neighbours_than_the_machine_keeps_is_told_the_number() {
        assert_eq!(shortage_of(0, 1024), None);
        assert_eq!(shortage_of(32, 1024), None);
        let said = shortage_of(33, 1024).expect("1,056 are more");
        assert!(said.ends_with("gc_thresh3=1056"), "{said}");
    }
}
