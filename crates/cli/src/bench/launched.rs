//! Collectives on the hosts of an MPI's launcher: with the preload library, and for comparison without it.
//!
//! The launcher starts a program (`measure.c`) that the MPI's compiler makes of the source held here (`program`), once a
//! round with the library and once without (`launch`). Its first rank writes times (`lines`), which become rows
//! (`rows`), tables (`output`) and a file to pass on (`document`), out of which names are taken (`names`).

mod document;
mod launch;
mod lines;
mod names;
mod output;
mod plan;
mod program;
mod rows;

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::Context as _;
use tributary_client::report::output as files;

use crate::flags::BenchFlags;
use launch::{Launcher, Stop};
use plan::{Library, Plan};
use rows::Measured;

/// Measures, shows the rows, and writes the file if one is asked for. Fails if an element was wrong.
pub(super) fn run(flags: &BenchFlags) -> anyhow::Result<ExitCode> {
    let plan = Plan::try_from(flags)?;
    let stop = Stop::catch()?;
    let program = program::compile(&plan)?;
    let launcher = Launcher::new(&plan, &program)?;
    let mut measured = Measured::new(&plan);
    for (number, round) in plan.rounds().enumerate() {
        for library in round {
            let outcome = launcher.start(&plan, number, library, &stop)?;
            measured.take(library, outcome)?;
        }
    }
    let rows = measured.rows(&plan);
    let facts = measured.facts();
    output::write(&plan, facts, &rows)?;
    if let Some(path) = &plan.report {
        let text = document::text(&plan, &measured, &rows)?;
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
