//! Makes a plan of the options, with the checks that need several of them.

use tributary_bench::{Collective, Step, Work};
use tributary_wire::{Datatype, Operator};

use super::sizes;
use crate::flags::{BenchFlags, OwnFlags, PathFlag, TransportFlag};
use crate::usage::UsageError;

/// A benchmark with checked options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) ranks: u32,
    pub(super) hosts: u32,
    pub(super) paths: Vec<PathFlag>,
    pub(super) transport: TransportFlag,
    pub(super) json: bool,
    pub(super) work: Work,
}

impl Plan {
    /// Hosts that the ranks of `path` act as.
    pub(super) fn hosts_of(&self, path: PathFlag) -> u32 {
        match path {
            PathFlag::Auto => self.hosts,
            PathFlag::Host => 1,
            PathFlag::Tree | PathFlag::Direct => self.ranks,
        }
    }

    /// Operations timed, over all sizes and paths.
    pub(super) fn operations(&self) -> u64 {
        let per_path: u64 = self.work.steps.iter().map(|step| step.iterations).sum();
        per_path * self.paths.len() as u64
    }
}

impl TryFrom<BenchFlags> for Plan {
    type Error = UsageError;

    fn try_from(flags: BenchFlags) -> Result<Self, UsageError> {
        let collective = flags.collective.map(Collective::from).ok_or_else(|| {
            let allowed = "a collective is needed, or -- and a launcher of MPI with its options";
            UsageError::new("COLLECTIVE", "", allowed)
        })?;
        let own = &flags.own;
        let datatype = datatype(own)?;
        let operator = operator(own, collective, datatype)?;
        if own.hosts > own.procs {
            let allowed = format!("at most --procs, which is {}, is allowed", own.procs);
            return Err(UsageError::new("--hosts", own.hosts.to_string(), allowed));
        }
        let mut paths = Vec::new();
        for path in &own.algo {
            if paths.contains(path) {
                return Err(UsageError::new("--algo", path.name(), "each path is allowed once"));
            }
            paths.push(*path);
        }
        let steps = steps(&flags, collective, datatype)?;
        Ok(Self {
            ranks: narrow(own.procs),
            hosts: narrow(own.hosts),
            paths,
            transport: own.transport,
            json: flags.json,
            work: Work {
                collective,
                datatype,
                operator,
                steps,
                verify: !own.no_verify,
                overlap: own.overlap,
            },
        })
    }
}

fn narrow(number: u64) -> u32 {
    u32::try_from(number).expect("the option's range ends below 2^32")
}

fn datatype(flags: &OwnFlags) -> Result<Datatype, UsageError> {
    Datatype::ALL.into_iter().find(|datatype| datatype.name() == flags.dtype).ok_or_else(|| {
        let names: Vec<&str> = Datatype::ALL.iter().map(|datatype| datatype.name()).collect();
        UsageError::new("--dtype", &*flags.dtype, format!("one of {} is allowed", names.join(", ")))
    })
}

/// The operator: what `--op` names for reductions, else the collective's own.
fn operator(
    flags: &OwnFlags,
    collective: Collective,
    datatype: Datatype,
) -> Result<Operator, UsageError> {
    let own = match collective {
        Collective::Barrier => Some(Operator::Barrier),
        Collective::Bcast => Some(Operator::Broadcast),
        Collective::Allreduce | Collective::Reduce => None,
    };
    match (own, &flags.op) {
        (Some(own), None) => Ok(own),
        (Some(_), Some(name)) => Err(UsageError::new(
            "--op",
            name,
            format!("only allreduce and reduce take an operator; {} has none", collective.name()),
        )),
        (None, name) => reduction(name.as_deref(), datatype),
    }
}

fn reduction(name: Option<&str>, datatype: Datatype) -> Result<Operator, UsageError> {
    let allowed: Vec<Operator> = Operator::ALL
        .into_iter()
        .filter(|operator| operator.is_reduction() && operator.applies_to(datatype))
        .collect();
    let Some(name) = name else {
        return Ok(allowed[0]);
    };
    allowed.iter().copied().find(|operator| operator.name() == name).ok_or_else(|| {
        let names: Vec<&str> = allowed.iter().map(|operator| operator.name()).collect();
        UsageError::new(
            "--op",
            name,
            format!("on {}, one of {} is allowed", datatype.name(), names.join(", ")),
        )
    })
}

fn steps(
    flags: &BenchFlags,
    collective: Collective,
    datatype: Datatype,
) -> Result<Vec<Step>, UsageError> {
    let sizes = if collective == Collective::Barrier {
        vec![0]
    } else {
        let element_bytes = datatype.size_bytes() as u64;
        match &flags.sizes {
            Some(sizes) => sizes::parse(sizes, element_bytes)?,
            None => sizes::usual(element_bytes),
        }
    };
    let step = |size_bytes| {
        let iterations = flags.iters.unwrap_or_else(|| sizes::usual_iterations(size_bytes));
        let warmup = flags.warmup.unwrap_or(iterations / 10);
        Step { size_bytes, warmup, iterations }
    };
    Ok(sizes.into_iter().map(step).collect())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::flags::{Command, Flags};

    fn plan(line: &str) -> Result<Plan, UsageError> {
        let flags = Flags::try_parse_from(format!("tributary bench {line}").split(' ')).unwrap();
        let Command::Bench(flags) = flags.command else { panic!("not a benchmark") };
        Plan::try_from(flags)
    }

    #[test]
    fn defaults_are_a_float_sum() {
        let plan = plan("allreduce").unwrap();
        assert_eq!((plan.ranks, plan.hosts), (4, 1));
        assert_eq!((plan.work.datatype, plan.work.operator), (Datatype::F32, Operator::Sum));
        let iterations: Vec<u64> = plan.work.steps.iter().map(|step| step.iterations).collect();
        assert_eq!(iterations, [1_000, 1_000, 100, 100]);
        assert!(plan.work.verify);
    }

    #[test]
    fn every_path_decides_the_hosts() {
        let plan = plan("reduce --procs 6 --hosts 2 --algo auto,host,tree,direct").unwrap();
        let hosts: Vec<u32> = plan.paths.iter().map(|&path| plan.hosts_of(path)).collect();
        assert_eq!(hosts, [2, 1, 6, 6]);
    }

    #[test]
    fn options_that_do_not_go_together_are_refused() {
        for (line, option, value) in [
            ("--json", "COLLECTIVE", ""),
            ("allreduce --hosts 5", "--hosts", "5"),
            ("allreduce --dtype f31", "--dtype", "f31"),
            ("allreduce --op minloc", "--op", "minloc"),
            ("allreduce --dtype f32-index --op sum", "--op", "sum"),
            ("reduce --op barrier --dtype i8", "--op", "barrier"),
            ("barrier --op sum", "--op", "sum"),
            ("bcast --op sum", "--op", "sum"),
            ("allreduce --sizes 6", "--sizes", "6"),
            ("allreduce --algo host,host", "--algo", "host"),
        ] {
            let error = plan(line).unwrap_err();
            assert_eq!((error.option.as_str(), error.value.as_str()), (option, value), "{line}");
        }
        assert_eq!(plan("allreduce --dtype f32-index").unwrap().work.operator, Operator::MinLoc);
        assert_eq!(plan("barrier").unwrap().work.steps.len(), 1);
    }
}
