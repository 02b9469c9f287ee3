//! Collectives on the hosts of an MPI's launcher: with the preload library, and for comparison without it.
//!
//! The launcher starts the measuring program ([`crate::launched`]) once a round with the library and once without. What its
//! first rank writes becomes tables (`output`) and a file to pass on.

mod output;
mod plan;

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::Context as _;
use tributary_client::knobs;
use tributary_client::report::output as files;
use tributary_measuring::{Library, Measured, Setting, document};

use crate::flags::BenchFlags;
use crate::launched::{Launcher, Start, Stop, compile};
use plan::Plan;

/// Measures, shows the rows, and writes the file if one is asked for. Fails if an element was wrong.
pub(super) fn run(flags: &BenchFlags) -> anyhow::Result<ExitCode> {
    let plan = Plan::try_from(flags)?;
    let stop = Stop::catch()?;
    let program = compile(&plan.job)?;
    let launcher = Launcher::new(&plan.job, &program)?;
    let mut measured = Measured::default();
    for (number, round) in (0..).zip(plan.rounds()) {
        for with in round {
            let library = with.library();
            let heading = format!("round {} of {}, {}", number + 1, plan.rounds, library.name());
            let start = Start { number, heading: &heading, cases: &plan.cases, with };
            let outcome = launcher.start(&start, &stop)?;
            measured.take(library, outcome).map_err(anyhow::Error::msg)?;
        }
    }
    let rows = measured.rows(&plan.cases);
    let facts = measured.facts();
    output::write(&plan, facts, &rows)?;
    if let Some(path) = &plan.report {
        let text = document(&setting(&plan), &measured, &rows)?;
        files::write(path, text.as_bytes(), 0o666)
            .with_context(|| format!("--report {}", path.display()))?;
    }
    let wrong: u64 = rows.iter().map(|row| row.wrong).sum();
    if wrong == 0 {
        return Ok(ExitCode::SUCCESS);
    }
    let library = if rows.iter().any(|row| row.wrong > 0 && row.library == Library::Plain) {
        "the plain MPI's are among them: ask its vendor first"
    } else {
        "all in measurements with the library, which is at fault: please tell the project"
    };
    writeln!(
        std::io::stderr().lock(),
        "tributary: {wrong} elements of results are wrong; {library}"
    )?;
    Ok(ExitCode::FAILURE)
}

/// What the file to pass on says about the environment, and what it must not say.
fn setting(plan: &Plan) -> Setting {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let is_set = |name: &&str| std::env::var_os(name).is_some();
    let user = ["USER", "LOGNAME"].into_iter().filter_map(variable);
    let machine = rustix::system::uname().nodename().to_string_lossy().into_owned();
    Setting {
        rounds: plan.rounds,
        fabric: variable(knobs::FABRIC.name).unwrap_or_else(|| knobs::FABRIC.default.to_owned()),
        manager_is_named: variable(knobs::MANAGER.name).is_some(),
        knobs_set: knobs::KNOBS
            .iter()
            .map(|knob| knob.name)
            .filter(is_set)
            .map(str::to_owned)
            .collect(),
        personal: user.chain([machine]).collect(),
    }
}
