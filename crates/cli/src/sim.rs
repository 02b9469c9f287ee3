//! `tributary sim figure`, `run` and `compare`: calls the simulator, and writes tables and files.

use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use comfy_table::{Cell as ShownCell, CellAlignment, ContentArrangement, Table as Shown};
use indicatif::{ProgressBar, ProgressStyle};
use tributary_charts::{Cell, Table};
use tributary_figures::plan::{self, Question};
use tributary_figures::{Compared, Effort, Figure, FigureError, Progress, site};
use tributary_sim::input::Refused;
use tributary_sim::preset::{self, BesideRanks, FabricShape, Preset};
use tributary_tuning::Tuning;

use crate::bench::sizes;
use crate::flags::{ClusterFlags, CompareFlags, FigureFlags, SimRunFlags, SystemFlags};
use crate::usage::UsageError;
use tributary_views::tables;

/// How often the progress bar is updated.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);

/// Makes one figure or all of them.
pub(crate) fn figure(flags: &FigureFlags) -> anyhow::Result<ExitCode> {
    if flags.list {
        let mut out = io::stdout().lock();
        for name in tributary_figures::names() {
            writeln!(out, "{name}")?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let effort = Effort { seed: flags.seed, operations: flags.operations };
    let names: Vec<&str> = match &flags.name {
        Some(name) => vec![name],
        None => tributary_figures::names().collect(),
    };
    for name in names {
        let started = Instant::now();
        let (figure, mut compared) = watch_progress(name, |progress| {
            let figure = tributary_figures::make(name, &effort, progress)?;
            Ok((figure, tributary_figures::compare(name, &effort, progress)?))
        })?;
        compared.captions.push(format!("seed {}; {}", effort.seed, figure.note));
        show(&figure, &compared, started.elapsed())?;
        if let Some(directory) = &flags.out {
            write_files(directory, &figure, &compared)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Simulates a cluster.
pub(crate) fn run(flags: &SimRunFlags) -> anyhow::Result<ExitCode> {
    if let Some(name) = &flags.print_preset {
        let text = preset::text(name)
            .map_err(|error| UsageError::new("--print-preset", name, error.to_string()))?;
        io::stdout().lock().write_all(text.as_bytes())?;
        return Ok(ExitCode::SUCCESS);
    }
    if flags.list_presets {
        return print_table(&presets(), flags.system.csv);
    }
    let (preset, question) = question(&flags.system)?;
    let table = watch_progress("run", |progress| plan::run(&preset, &question, progress))
        .map_err(about_options)?;
    print_table(&table, flags.system.csv)
}

/// The presets of the program.
fn presets() -> Table {
    let mut table = Table::new(&["preset", "about"]);
    for name in preset::names() {
        let preset = preset::read_shipped(name).expect("a test reads all of them");
        table.add(vec![Cell::Text(name.to_owned()), Cell::Text(preset.about)]);
    }
    table
}

/// Ranks designs for a cluster.
pub(crate) fn compare(flags: &CompareFlags) -> anyhow::Result<ExitCode> {
    let (preset, question) = question(&flags.system)?;
    let table = watch_progress("compare", |progress| plan::compare(&preset, &question, progress))
        .map_err(about_options)?;
    print_table(&table, flags.system.csv)
}

/// The preset that the options describe.
pub(crate) fn cluster(flags: &ClusterFlags) -> anyhow::Result<Preset> {
    let mut preset = match (&flags.config, &flags.site) {
        (_, Some(file)) => read_site(file)?,
        (Some(path), None) => {
            let text = std::fs::read_to_string(path)
                .with_context(|| format!("preset file {}", path.display()))?;
            preset::read(&text).map_err(|error| {
                UsageError::new("--config", path.to_string_lossy(), error.to_string())
            })?
        }
        (None, None) => preset::read_shipped(&flags.preset)
            .map_err(|error| UsageError::new("--preset", &flags.preset, error.to_string()))?,
    };
    if let Some(file) = &flags.fabric {
        preset.fabric = FabricShape::Topology { file: file.clone() };
    }
    Ok(preset)
}

/// The preset of a site that `tributary tune` has measured.
fn read_site(file: &Path) -> anyhow::Result<Preset> {
    let tuning = Tuning::read(file).map_err(|error| error.to_string());
    let preset = tuning.and_then(|tuning| site::preset_of(&tuning));
    Ok(preset.map_err(|problem| UsageError::new("--site", file.to_string_lossy(), problem))?)
}

fn question(flags: &SystemFlags) -> anyhow::Result<(Preset, Question)> {
    let mut preset = cluster(&flags.cluster)?;
    if let Some(aggregators) = &flags.aggregators {
        let beside = beside_ranks(aggregators)?;
        preset = preset.with_nodes_beside_ranks(beside).map_err(|refused| {
            UsageError::new("--aggregators", aggregators, refused.to_string())
        })?;
    }
    let sizes = sizes::parse(&flags.sizes, 1)?;
    let question = Question {
        hosts: flags.hosts,
        groups: flags.groups,
        processes: flags.processes,
        sizes_bytes: sizes.into_iter().map(|bytes| bytes as usize).collect(),
        effort: Effort { seed: flags.seed, operations: flags.operations },
    };
    Ok((preset, question))
}

/// Where aggregators are beside ranks: a number, or a file of hosts' names.
fn beside_ranks(text: &str) -> anyhow::Result<BesideRanks> {
    if let Ok(count) = text.parse() {
        return Ok(BesideRanks::Count(count));
    }
    let names = std::fs::read_to_string(text)
        .with_context(|| format!("--aggregators {text}: neither a number nor a file"))?;
    let names = names.lines().map(str::trim).filter(|name| !name.is_empty());
    Ok(BesideRanks::Hosts(names.map(str::to_owned).collect()))
}

/// A question that the system can't answer, as an error about the option that asks it.
fn about_options(error: anyhow::Error) -> anyhow::Error {
    match error.downcast_ref() {
        Some(FigureError::Question(refused)) => refused_option(refused),
        _ => error,
    }
}

/// A value that is not allowed, as an error about the option of its key.
pub(crate) fn refused_option(Refused { key, value, allowed }: &Refused) -> anyhow::Error {
    UsageError::new(format!("--{key}"), value, format!("allowed is {allowed}")).into()
}

/// Runs `work`, with a progress bar if standard error is a terminal.
pub(crate) fn watch_progress<T: Send>(
    name: &str,
    work: impl FnOnce(&Progress) -> Result<T, FigureError> + Send,
) -> anyhow::Result<T> {
    let progress = Progress::default();
    if !io::stderr().is_terminal() {
        return Ok(work(&progress)?);
    }
    let style = ProgressStyle::with_template("{prefix} {bar:40} {pos}/{len} {elapsed}");
    let bar = ProgressBar::new(0).with_style(style.expect("the template is ours"));
    bar.set_prefix(name.to_owned());
    let result = std::thread::scope(|scope| {
        let worker = scope.spawn(|| work(&progress));
        while !worker.is_finished() {
            let (done, total) = progress.state();
            bar.set_length(total);
            bar.set_position(done);
            std::thread::sleep(PROGRESS_INTERVAL);
        }
        worker.join()
    });
    bar.finish_and_clear();
    match result {
        Ok(result) => Ok(result?),
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

fn show(figure: &Figure, compared: &Compared, took: Duration) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{}: {} ({:.1} s)", figure.name, figure.title, took.as_secs_f64())?;
    writeln!(out, "{}", in_text(figure, compared))?;
    Ok(())
}

/// The table, then the published statements about it.
fn in_text(figure: &Figure, compared: &Compared) -> String {
    let mut text = as_text(&figure.table) + "\n";
    for caption in &compared.captions {
        text += caption;
        text.push('\n');
    }
    text
}

pub(crate) fn print_table(table: &Table, csv: bool) -> anyhow::Result<ExitCode> {
    let text = if csv { table.csv() } else { as_text(table) + "\n" };
    io::stdout().lock().write_all(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn as_text(table: &Table) -> String {
    let mut shown = Shown::new();
    shown.load_style(comfy_table::presets::NOTHING);
    shown.set_content_arrangement(ContentArrangement::Disabled);
    shown.set_header(table.columns.iter().map(ShownCell::new));
    for row in &table.rows {
        shown.add_row(row.iter().map(|cell| {
            let is_text = matches!(cell, Cell::Text(_));
            let shown = ShownCell::new(cell.to_string());
            if is_text { shown } else { shown.set_alignment(CellAlignment::Right) }
        }));
    }
    for column in shown.column_iter_mut() {
        column.set_padding((0, 2));
    }
    tables::text(&shown)
}

fn write_files(directory: &Path, figure: &Figure, compared: &Compared) -> anyhow::Result<()> {
    std::fs::create_dir_all(directory)
        .with_context(|| format!("directory {}", directory.display()))?;
    let write = |extension: &str, content: &[u8]| {
        let path = directory.join(figure.name).with_extension(extension);
        std::fs::write(&path, content).with_context(|| format!("file {}", path.display()))
    };
    write("csv", figure.table.csv().as_bytes())?;
    write("txt", in_text(figure, compared).as_bytes())?;
    if !compared.table.rows.is_empty() {
        write("published.csv", compared.table.csv().as_bytes())?;
    }
    write("svg", figure.chart.svg(&figure.title, &compared.captions)?.as_bytes())
}
