//! Has the launcher start the measuring program, and reads what it says.
//!
//! Variables go to the ranks by `env`, which the launcher starts before the program: so it need not pass any on, and
//! is called in the same way with the library and without.

use std::ffi::{OsStr, OsString};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context as _, bail};
use rustix::process::{Pid, Signal};
use tributary_client::report::{REPORT_BYTES_MAX, Report, output as files};
use tributary_client::{Settings, knobs};
use tributary_measuring::{Case, Library, Line, Outcome, Said, median, read_line};

use super::job::Job;
use super::program::MeasuringProgram;
use crate::run::launchers::{self, Machine};
use crate::run::{self, Preload, Target};
use crate::signals::{Signals, Watch};
use crate::{texts, usage};

/// The program's own variable, for the project's test.
const PLANTED: &str = "MEASURE_PLANT_WRONG";

/// Signals that ask this process to stop: they go to the launcher too.
pub(crate) struct Stop {
    target: Arc<Mutex<Option<Target>>>,
    signal: Arc<AtomicI32>,
    _watch: Watch,
}

impl Stop {
    pub(crate) fn catch() -> io::Result<Self> {
        let (target, signal) =
            (Arc::<Mutex<Option<Target>>>::default(), Arc::new(AtomicI32::new(0)));
        let (passed_to, noted) = (Arc::clone(&target), Arc::clone(&signal));
        let watch = Signals::catch()?.watch(move |number| {
            // Pairs with the load in `check`.
            noted.store(number, Ordering::Release);
            let target = passed_to.lock().unwrap_or_else(PoisonError::into_inner);
            if let (Some(target), Some(signal)) = (&*target, Signal::from_named_raw(number)) {
                target.send(signal);
            }
        });
        Ok(Self { target, signal, _watch: watch })
    }

    /// Fails if this process was asked to stop.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        // Pairs with the store in `catch`.
        match self.signal.load(Ordering::Acquire) {
            0 => Ok(()),
            number => bail!("stopped by {}", tributary_bench::name_signal(number)),
        }
    }

    fn set_target(&self, target: Option<Target>) {
        *self.target.lock().unwrap_or_else(PoisonError::into_inner) = target;
    }
}

/// The launcher, and what it starts.
pub(crate) struct Launcher<'a> {
    job: &'a Job,
    program: &'a MeasuringProgram,
    preload: Preload,
    /// What the variable holds without the library.
    preloaded_else: OsString,
    run_id: String,
}

/// What one start of the launcher measures.
pub(crate) struct Start<'a> {
    /// Which start of the program it is.
    pub(crate) number: u64,
    /// As the user is told.
    pub(crate) heading: &'a str,
    pub(crate) cases: &'a [Case],
    pub(crate) with: With<'a>,
}

/// What the ranks have in their environment.
#[derive(Clone, Copy)]
pub(crate) enum With<'a> {
    /// The preload library, with these knobs in the place of the user's.
    Ours(&'a [(&'static str, String)]),
    /// The MPI alone.
    Plain,
}

impl With<'_> {
    pub(crate) fn library(self) -> Library {
        match self {
            Self::Ours(_) => Library::Ours,
            Self::Plain => Library::Plain,
        }
    }
}

impl<'a> Launcher<'a> {
    pub(crate) fn new(job: &'a Job, program: &'a MeasuringProgram) -> anyhow::Result<Self> {
        Settings::from_env().map_err(usage::from_setting)?;
        let library = run::library::find()?;
        let before = std::env::var_os("LD_PRELOAD").unwrap_or_default();
        let preload = Preload::new(&library, Some(&before))
            .context("the preload library can't be named in LD_PRELOAD")?;
        let words = job.words.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>();
        let mut out = io::stderr().lock();
        if let Some(note) = &preload.note {
            writeln!(out, "tributary: {note}")?;
        }
        writeln!(out, "tributary: measuring with {}", texts::printable_lines(&words.join(" ")))?;
        let run_id = format!("bench-{}", std::process::id());
        Ok(Self { job, program, preload, preloaded_else: others(&before, &library), run_id })
    }

    /// Starts the measuring program once, and waits for its end.
    pub(crate) fn start(&self, start: &Start<'_>, stop: &Stop) -> anyhow::Result<Outcome> {
        stop.check()?;
        let Job { program, words, .. } = self.job;
        let mut child = Command::new(program)
            .args(&words[1..])
            .args(self.words(start))
            .env_remove("LD_PRELOAD")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("{} does not start", program.display()))?;
        let target = Target::default();
        stop.set_target(Some(target.clone()));
        target.begin(Pid::from_child(&child));
        let heading = start.heading;
        let said = read_all(&mut child, start);
        run::await_end(&child);
        target.end();
        stop.set_target(None);
        let status = child.wait()?;
        stop.check()?;
        let name = words[0].to_string_lossy();
        if !status.success() {
            let variable = |name: &str| std::env::var_os(name);
            let remedy = launchers::remedy(program, words, Machine::this(), variable);
            let remedy = remedy.map(|remedy| format!("; {remedy}")).unwrap_or_default();
            bail!(
                "{heading}: {name} ended ({status}); what it or a rank said is above{remedy}. If a host lacks the \
                 program, name a folder that all hosts have with --folder"
            );
        }
        let mut outcome = said.and_then(|said| Ok(said.complete(start.cases)?)).with_context(|| {
            format!("{heading}: {name} ended well, but the times that came through its output are not whole")
        })?;
        if start.with.library() == Library::Ours {
            outcome.report = Some(self.report(start.number)?);
        }
        Ok(outcome)
    }

    /// What stands behind the launcher's own words.
    fn words(&self, start: &Start<'_>) -> Vec<OsString> {
        let mut words: Vec<OsString> = vec!["env".into()];
        match start.with {
            With::Plain if self.preloaded_else.is_empty() => {
                words.extend(["-u".into(), "LD_PRELOAD".into()]);
            }
            With::Plain => words.push(assignment("LD_PRELOAD", &self.preloaded_else)),
            With::Ours(own) => {
                words.extend(variables_to_pass_on(own));
                words.extend(own.iter().map(|(name, value)| assignment(name, OsStr::new(value))));
                words.push(assignment("LD_PRELOAD", &self.preload.value));
                let report = self.program.report_path(start.number);
                words.push(assignment(knobs::REPORT.name, report.as_os_str()));
                words.push(assignment(knobs::RUN_ID.name, OsStr::new(&self.run_id)));
                words.push(assignment(knobs::TIMES.name, OsStr::new("off")));
            }
        }
        words.push(self.program.path().into());
        words.extend(start.cases.iter().map(|case| case.word().into()));
        words
    }

    fn report(&self, start: u64) -> anyhow::Result<Report> {
        let path = self.program.report_path(start);
        let bytes = files::read(&path, REPORT_BYTES_MAX).with_context(|| {
            "the library has left no report, so nobody knows what was measured: see that all hosts have the preload \
             library under the same path as this one, and that --folder names a folder that all hosts share"
        })?;
        serde_json::from_slice(&bytes).context("the library's report")
    }
}

/// The knobs of this process for the ranks, but those that the measurement sets.
fn variables_to_pass_on(own: &[(&'static str, String)]) -> Vec<OsString> {
    let set = [knobs::REPORT.name, knobs::RUN_ID.name, knobs::TIMES.name];
    let set: Vec<&str> = set.into_iter().chain(own.iter().map(|(name, _)| *name)).collect();
    std::env::vars_os()
        .filter(|(name, _)| name.as_bytes().starts_with(b"TRIBUTARY_") || name == PLANTED)
        .filter(|(name, _)| !set.iter().any(|set| name == set))
        .map(|(name, value)| assignment(name, &value))
        .collect()
}

fn assignment(name: impl Into<OsString>, value: &OsStr) -> OsString {
    let mut word = name.into();
    word.push("=");
    word.push(value);
    word
}

/// What `LD_PRELOAD` holds but the library: a user may have it there already.
fn others(before: &OsStr, library: &Path) -> OsString {
    let words = before.as_bytes().split(|byte| matches!(byte, b' ' | b':'));
    let kept =
        words.filter(|word| Path::new(OsStr::from_bytes(word)).file_name() != library.file_name());
    let kept: Vec<&[u8]> = kept.filter(|word| !word.is_empty()).collect();
    OsStr::from_bytes(&kept.join(&b':')).to_owned()
}

/// Reads to the end of the launcher's output, whatever is in it, so that the launcher never waits.
fn read_all(child: &mut Child, start: &Start<'_>) -> anyhow::Result<Said> {
    let output: ChildStdout = child.stdout.take().expect("it is piped");
    let mut said = Said::nothing(start.cases.len());
    let mut wrong = None;
    for text in BufReader::new(output).split(b'\n') {
        let text = text?;
        let text = String::from_utf8_lossy(&text);
        match read_line(&text) {
            // A launcher's words, or a library's.
            None => writeln!(io::stderr().lock(), "{}", texts::printable_lines(&text))?,
            Some(line) => {
                let taken = line.map_err(anyhow::Error::from);
                let taken = taken.and_then(|line| take(&mut said, line, start));
                wrong = wrong.or(taken.err());
            }
        }
    }
    wrong.map_or(Ok(said), Err)
}

/// Takes a line, and tells of each case that is over.
fn take(said: &mut Said, line: Line, start: &Start<'_>) -> anyhow::Result<()> {
    if let Some((done, times)) = said.take(line)? {
        let Start { heading, cases, .. } = start;
        let (number, count) = (done.case + 1, cases.len());
        let (name, bytes, us) = (cases[done.case].name(), done.bytes, median(times));
        writeln!(
            io::stderr().lock(),
            "tributary: {heading}, {number}/{count}: {name}, {bytes} bytes: {us:.2} us"
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_plain_mpi_runs_without_the_library_whoever_preloads_it() {
        let others = |before: &str| others(OsStr::new(before), Path::new("/opt/libtributary.so"));
        assert_eq!(others(""), "");
        assert_eq!(others("/elsewhere/libtributary.so"), "");
        assert_eq!(others("tool.so:/opt/libtributary.so b.so"), "tool.so:b.so");
    }
}
