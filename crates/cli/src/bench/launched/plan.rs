//! Makes a plan of the options.

use std::path::PathBuf;

use tributary_measuring::Case;

use super::super::sizes;
use crate::flags::BenchFlags;
use crate::launched::{Job, With};
use crate::usage::UsageError;

/// The element is a float.
const ELEMENT_BYTES: u64 = 4;

/// A measurement with checked options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) job: Job,
    pub(super) cases: Vec<Case>,
    pub(super) peer: bool,
    pub(super) rounds: u64,
    pub(super) json: bool,
    pub(super) report: Option<PathBuf>,
}

impl Plan {
    /// What each round runs, in turns: the second one finds the machine as the first has left it.
    pub(super) fn rounds(&self) -> impl Iterator<Item = Vec<With<'static>>> {
        let peer = self.peer;
        (0..self.rounds).map(move |round| match (peer, round % 2) {
            (false, _) => vec![With::Ours(&[])],
            (true, 0) => vec![With::Ours(&[]), With::Plain],
            (true, _) => vec![With::Plain, With::Ours(&[])],
        })
    }
}

impl TryFrom<&BenchFlags> for Plan {
    type Error = UsageError;

    fn try_from(flags: &BenchFlags) -> Result<Self, UsageError> {
        let given = &flags.launched;
        let job = Job::new(&flags.launcher, &given.measuring)?;
        if let Some(report) = &given.report {
            let parent =
                std::path::absolute(report).ok().and_then(|path| path.parent().map(PathBuf::from));
            if report.is_dir() || !parent.is_some_and(|parent| parent.is_dir()) {
                let allowed = "a file in an existing folder is allowed";
                return Err(UsageError::new("--report", report.to_string_lossy(), allowed));
            }
        }
        Ok(Self {
            job,
            cases: cases(flags)?,
            peer: given.peer,
            rounds: given.rounds,
            json: flags.json,
            report: given.report.clone(),
        })
    }
}

fn cases(flags: &BenchFlags) -> Result<Vec<Case>, UsageError> {
    let given = &flags.launched;
    let sizes = match &flags.sizes {
        Some(sizes) => sizes::parse(sizes, ELEMENT_BYTES)?,
        None => sizes::usual(ELEMENT_BYTES),
    };
    let mut cases = Vec::new();
    for (number, &collective) in given.collectives.iter().enumerate() {
        if given.collectives[..number].contains(&collective) {
            let allowed = "each collective is allowed once";
            return Err(UsageError::new("--collectives", collective.name(), allowed));
        }
        for nonblocking in [false, true] {
            if nonblocking && !given.nonblocking {
                continue;
            }
            for &size_bytes in if collective.has_data() { &sizes[..] } else { &[0] } {
                let blocks = flags.iters.unwrap_or_else(|| sizes::usual_iterations(size_bytes));
                cases.push(Case {
                    collective,
                    nonblocking,
                    in_place: given.in_place && collective.has_place(),
                    size_bytes,
                    blocks,
                    warmup: flags.warmup.unwrap_or(blocks / 10),
                    calls_min: 1,
                });
            }
        }
    }
    Ok(cases)
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use tributary_measuring::Library;

    use super::*;
    use crate::flags::{Command, Flags};

    fn plan(line: &str) -> Result<Plan, UsageError> {
        let flags = Flags::try_parse_from(format!("tributary bench {line}").split(' ')).unwrap();
        let Command::Bench(flags) = flags.command else { panic!("not a benchmark") };
        Plan::try_from(&flags)
    }

    #[test]
    fn cases_are_collectives_in_their_forms_and_sizes() {
        let list =
            "--collectives allreduce,barrier,reduce_scatter --sizes 8,64K --nonblocking --in-place";
        let plan = plan(&format!("{list} --rounds 3 --peer -- sh -c")).unwrap();
        let words: Vec<String> = plan.cases.iter().map(Case::word).collect();
        assert_eq!(
            words,
            [
                "allreduce:8:1000:100:bi",
                "allreduce:65536:100:10:bi",
                "allreduce:8:1000:100:ni",
                "allreduce:65536:100:10:ni",
                "barrier:0:1000:100:b",
                "barrier:0:1000:100:n",
                "reduce_scatter:8:1000:100:bi",
                "reduce_scatter:65536:100:10:bi",
                "reduce_scatter:8:1000:100:ni",
                "reduce_scatter:65536:100:10:ni",
            ]
        );
        let first: Vec<Library> = plan.rounds().map(|round| round[0].library()).collect();
        assert_eq!(first, [Library::Ours, Library::Plain, Library::Ours], "in turns");
        assert_eq!(plan.cases[2].name(), "iallreduce");
    }

    #[test]
    fn what_can_not_be_used_is_refused_by_name() {
        for (line, option, value) in [
            ("-- no-such-launcher -n 8", "LAUNCHER", "no-such-launcher"),
            ("--sizes 6 -- sh", "--sizes", "6"),
            ("--collectives scan,scan -- sh", "--collectives", "scan"),
            ("--folder /nowhere -- sh", "--folder", "/nowhere"),
            ("--report /nowhere/file -- sh", "--report", "/nowhere/file"),
        ] {
            let error = plan(line).unwrap_err();
            assert_eq!((error.option.as_str(), error.value.as_str()), (option, value), "{line}");
        }
    }
}
