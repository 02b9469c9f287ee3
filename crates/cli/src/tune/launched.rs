//! Paths measured over the hosts of an MPI's launcher, and the prices of their network.
//!
//! Each path is a start of the measuring program ([`crate::launched`]) with the knobs that name it. Paths take turns, round by
//! round, so that all have the same moments of the cluster. The file is written after every round.

mod summary;

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use tributary_algorithms::network::{Network, NetworkPrices};
use tributary_client::Settings;
use tributary_measuring::paths::{MeasuredPath, Shape, paths};
use tributary_measuring::{Case, Collective, Measured, Outcome};
use tributary_tuning::{Measurement, Site, Timed, Tuning, fit};

use crate::bench::sizes;
use crate::flags::{CollectiveFlag, TuneFlags};
use crate::launched::{Job, Launcher, Start, Stop, With, compile};
use crate::usage;
use summary::write as write_summary;

/// Bytes of an element of the measuring program.
const ELEMENT_BYTES: u64 = 4;

/// Calls of a block: at which times ranks begin it counts for an eighth.
const BLOCK_CALLS: u64 = 8;

/// Measures and writes.
pub(super) fn tune(flags: &TuneFlags) -> anyhow::Result<ExitCode> {
    let settings = Settings::from_env().map_err(usage::from_setting)?;
    let job = Job::new(&flags.launcher, &flags.measuring)?;
    let cases = cases(flags)?;
    // Before minutes of measurement.
    OpenOptions::new()
        .append(true)
        .create(true)
        .open(&flags.file)
        .with_context(|| format!("{} can't be written", flags.file.display()))?;
    let stop = Stop::catch()?;
    let program = compile(&job)?;
    let launcher = Launcher::new(&job, &program)?;
    let mut session = Session { launcher, stop, cases: &cases, starts: 0 };

    let began = Instant::now();
    let mut first = MeasuredPath::direct();
    session.run(&mut first, "1: what is there")?;
    let (shape, mut tuning) = look_at(&first.measured, flags)?;
    let mut paths = paths(shape, settings.manager.is_some());
    paths.retain(|path| !path.cases(&cases).is_empty());
    announce(paths.len() as u64 * flags.rounds, began.elapsed())?;
    for round in 0..flags.rounds {
        session.run_round(round, flags.rounds, &mut paths)?;
        tuning.measurements = measurements(&paths, &cases, shape);
        tuning.write(&flags.file)?;
    }
    add_prices(&mut tuning, &paths, shape);
    tuning.write(&flags.file)?;
    write_summary(&tuning, &flags.file)?;
    Ok(ExitCode::SUCCESS)
}

/// What is timed on every path that carries it.
fn cases(flags: &TuneFlags) -> anyhow::Result<Vec<Case>> {
    let sizes = sizes::parse(&flags.sizes, ELEMENT_BYTES)?;
    let mut cases = Vec::new();
    for collective in &flags.collectives {
        let collective = measured_collective(*collective);
        for &size_bytes in if collective.has_data() { &sizes[..] } else { &[0] } {
            cases.push(Case {
                collective,
                nonblocking: false,
                in_place: false,
                size_bytes,
                blocks: flags.iters,
                warmup: flags.iters / 10,
                calls_min: BLOCK_CALLS,
            });
        }
    }
    Ok(cases)
}

fn measured_collective(flag: CollectiveFlag) -> Collective {
    match flag {
        CollectiveFlag::Allreduce => Collective::Allreduce,
        CollectiveFlag::Reduce => Collective::Reduce,
        CollectiveFlag::Barrier => Collective::Barrier,
        CollectiveFlag::Bcast => Collective::Bcast,
    }
}

/// What the first start tells of the hosts.
fn look_at(measured: &Measured, flags: &TuneFlags) -> anyhow::Result<(Shape, Tuning)> {
    let facts = measured.facts();
    let shape = Shape { hosts: facts.hosts() as u32, ranks: facts.ranks() as u32 };
    if shape.hosts < 2 {
        bail!(
            "the launcher has started all {} ranks on one host, and there is nothing to select between hosts: name the \
             hosts to it, such as by --hostfile",
            shape.ranks
        );
    }
    let site = site(facts, shape, flags);
    Ok((shape, Tuning { machine: site.adapters.join("; "), site: Some(site), ..Tuning::default() }))
}

fn site(facts: &Outcome, Shape { hosts, ranks }: Shape, flags: &TuneFlags) -> Site {
    Site {
        hosts,
        ranks,
        one_kernel: facts.is_one_kernel(),
        mpi: tributary_measuring::library_name(facts.library()),
        kernels: facts.kernels(),
        adapters: facts.adapters(),
        tributary: env!("CARGO_PKG_VERSION").to_owned(),
        rounds: flags.rounds as u32,
        prices_miss: None,
    }
}

/// Says how long it will take: every start about as long as the first.
fn announce(starts: u64, first_took: Duration) -> io::Result<()> {
    let minutes = (first_took.as_secs_f64() * starts as f64 / 60.0).ceil();
    let plural = if minutes > 1.0 { "s" } else { "" };
    writeln!(
        io::stderr().lock(),
        "tributary: {starts} starts of the launcher follow, which take about {minutes} minute{plural}"
    )
}

struct Session<'a> {
    launcher: Launcher<'a>,
    stop: Stop,
    cases: &'a [Case],
    starts: u64,
}

impl Session<'_> {
    /// One start on each path that has not failed.
    fn run_round(
        &mut self,
        round: u64,
        rounds: u64,
        paths: &mut [MeasuredPath],
    ) -> anyhow::Result<()> {
        let count = paths.len();
        for (number, path) in paths.iter_mut().enumerate() {
            if path.has_failed {
                continue;
            }
            let at = round * count as u64 + number as u64 + 1;
            let heading = format!("{at} of {}: {}", rounds * count as u64, path.name());
            let ended = self.run(path, &heading);
            self.stop.check()?;
            if let Err(problem) = ended {
                writeln!(
                    io::stderr().lock(),
                    "tributary: {} is left out: {problem:#}",
                    path.name()
                )?;
                path.has_failed = true;
            }
        }
        if paths.iter().all(|path| path.has_failed) {
            bail!("no path could be measured; what was wrong is above");
        }
        Ok(())
    }

    fn run(&mut self, path: &mut MeasuredPath, heading: &str) -> anyhow::Result<()> {
        let knobs = path.knobs();
        let cases = path.cases(self.cases);
        self.starts += 1;
        let start = Start { number: self.starts, heading, cases: &cases, with: With::Ours(&knobs) };
        let outcome = self.launcher.start(&start, &self.stop)?;
        path.take(outcome, &cases).map_err(anyhow::Error::msg)
    }
}

fn measurements(paths: &[MeasuredPath], cases: &[Case], shape: Shape) -> Vec<Measurement> {
    paths
        .iter()
        .filter(|path| !path.has_failed)
        .flat_map(|path| path.measurements(&path.cases(cases), shape))
        .collect()
}

/// Adds the prices that explain the times, where they do.
fn add_prices(tuning: &mut Tuning, paths: &[MeasuredPath], shape: Shape) {
    if shape.ranks != shape.hosts {
        return;
    }
    let is_of_prices = |row: &&Measurement| {
        row.collective == tributary_client::CollectiveKind::Allreduce && row.leaders == 1
    };
    let times: Vec<Timed> = tuning
        .measurements
        .iter()
        .filter(is_of_prices)
        .filter_map(|row| {
            let path = paths.iter().find(|path| path.is_of(row))?;
            let Measurement { hosts, len_bytes, time_us, .. } = *row;
            Some(Timed { way: path.way()?, hosts, len_bytes, time_us })
        })
        .collect();
    let fitted = fit(&times, NetworkPrices::from(Network::Ethernet25));
    let Some(fitted) = fitted else { return };
    if let Some(site) = &mut tuning.site {
        site.prices_miss = Some([fitted.mean_miss, fitted.worst_miss]);
    }
    tuning.prices = fitted.explains_the_times().then_some(fitted.prices);
}
