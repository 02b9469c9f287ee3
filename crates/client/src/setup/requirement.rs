//! What a job must have to go on, held against what a communicator got.

use tributary_settings::Requirement;
use tributary_settings::knobs::REQUIRE;

use super::agreement::Unavailable;
use super::ready::Ready;

/// The outcome of a set-up, which is the same on all ranks; a failure of another kind where the job requires more.
pub(super) fn check(
    requirement: Requirement,
    outcome: Result<Ready, Unavailable>,
) -> Result<Ready, Unavailable> {
    let unmet = |problem| Unavailable::Unmet { knob: REQUIRE.name, requirement, problem };
    match outcome {
        Ok(ready) => {
            match problem_without_tree(&ready).filter(|_| requirement == Requirement::Tree) {
                Some(problem) => Err(unmet(problem)),
                None => Ok(ready),
            }
        }
        Err(error) if requires(requirement, &error) => Err(unmet(error.to_string())),
        Err(error) => Err(error),
    }
}

/// Why a communicator of several hosts has no tree; none if it has one, or needs none.
fn problem_without_tree(ready: &Ready) -> Option<String> {
    let notes = &ready.notes;
    let lacks_tree = !ready.is_on_one_host && !notes.has_tree;
    lacks_tree.then(|| {
        notes.joining.clone().unwrap_or_else(|| {
            let hosts = notes.hosts;
            format!("{hosts} hosts are joined by direct links (TRIBUTARY_BETWEEN_HOSTS=tree takes the tree)")
        })
    })
}

/// Whether a communicator that can't be had is one that the job must have.
fn requires(requirement: Requirement, error: &Unavailable) -> bool {
    let is_between_hosts = matches!(
        error,
        Unavailable::LeftToMpi { .. }
            | Unavailable::SwitchedOff { .. }
            | Unavailable::NoManager { .. }
            | Unavailable::Unreachable { .. }
            | Unavailable::NotGranted(_)
    );
    match requirement {
        Requirement::Nothing => false,
        Requirement::InHost => !is_between_hosts,
        Requirement::Between | Requirement::Tree => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_joins_hosts_is_not_required_inside_them() {
        let far = Unavailable::SwitchedOff { hosts: 2 };
        let near = Unavailable::Rank { rank: 1, problem: "no memory".to_owned() };
        let required = |requirement| [&far, &near].map(|error| requires(requirement, error));
        assert_eq!(required(Requirement::Nothing), [false, false]);
        assert_eq!(required(Requirement::InHost), [false, true]);
        assert_eq!(required(Requirement::Between), [true, true]);
        assert_eq!(required(Requirement::Tree), [true, true]);
        let unmet = check(Requirement::Between, Err(far)).err().map(|error| error.to_string());
        assert_eq!(
            unmet.as_deref(),
            Some(
                "TRIBUTARY_REQUIRE=between, but spans 2 hosts, and nothing may join them (TRIBUTARY_FABRIC is off)"
            )
        );
    }
}
