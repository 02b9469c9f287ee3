//! What a sum must be: the plan's order, computed over all hosts at once.

use super::host::fold;
use super::scenario::Scenario;

/// What a host contributes to an operation.
pub(super) fn value(scenario: &Scenario, host: u32, operation: u64) -> u64 {
    let mixed = scenario.seed ^ operation.wrapping_mul(0x9E37_79B9) ^ u64::from(host) << 40;
    mixed.wrapping_mul(0xD129_42C6_8A3E_E1B5).rotate_left(17)
}

/// The sum of all hosts' contributions: neighbours are folded group by group, level by level.
pub(super) fn sum(scenario: &Scenario, operation: u64) -> u64 {
    let plan = &scenario.plan;
    let mut values: Vec<u64> =
        (0..plan.hosts()).map(|host| value(scenario, host, operation)).collect();
    for level in 0..plan.levels() {
        let mut left = &values[..];
        let folded = plan.group_sizes(level).map(|members| {
            let (group, behind) = left.split_at(members as usize);
            left = behind;
            fold(group)
        });
        values = folded.collect();
    }
    values[0]
}
