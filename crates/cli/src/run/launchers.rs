//! What `tributary run` knows about the launchers of MPI: that it comes before them, and why they fail on small
//! machines.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::{Command, Stdio};

/// Variables in which launchers tell ranks how many there are.
const RANKS: [&str; 3] = ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MPI_LOCALNRANKS"];

/// Options of Open MPI that give the number of ranks.
const COUNT_OPTIONS: [&str; 4] = ["-n", "-np", "--np", "-c"];

/// Words in a command that say more ranks than cores are wanted.
const ROOMY: [&str; 4] = ["oversubscribe", "hostfile", "-host", "hwthread"];

/// Says what is wrong if this process is one of several ranks that a launcher started.
pub(crate) fn wrong_way_round(
    variable: impl Fn(&str) -> Option<OsString>,
    command: &[OsString],
) -> Option<String> {
    let started = RANKS.into_iter().find_map(|name| {
        let ranks: u32 = variable(name)?.to_str()?.parse().ok()?;
        (ranks > 1).then_some((name, ranks))
    });
    let (name, ranks) = started?;
    let words: Vec<_> = command.iter().map(|word| word.to_string_lossy()).collect();
    let program = if words.is_empty() { "./app".to_owned() } else { words.join(" ") };
    Some(format!(
        "run: a launcher has started this command {ranks} times ({name}={ranks}), once for each rank. It goes the other \
         way round: tributary run -- mpirun -n {ranks} {program}"
    ))
}

/// The machine as far as a launcher looks at it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Machine {
    pub(crate) cores: usize,
    pub(crate) is_root: bool,
}

impl Machine {
    pub(crate) fn this() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get);
        Self { cores, is_root: rustix::process::geteuid().is_root() }
    }
}

/// Why a launcher may have started nothing, and what to add to its command; none if nothing is known.
pub(crate) fn remedy(
    program: &Path,
    command: &[OsString],
    machine: Machine,
    variable: impl Fn(&str) -> Option<OsString>,
) -> Option<String> {
    let major = open_mpi_version(program, command)?;
    remedy_of(major, command, machine, variable)
}

/// The major version of Open MPI whose launcher a command begins with; none if it begins with something else.
pub(crate) fn open_mpi_version(program: &Path, command: &[OsString]) -> Option<u32> {
    let name = Path::new(command.first()?).file_name()?.to_str()?;
    let is_launcher =
        ["mpirun", "mpiexec", "orterun", "prterun"].iter().any(|known| name.starts_with(known));
    is_launcher.then(|| major_version(&version(program)?)).flatten()
}

fn remedy_of(
    major: u32,
    command: &[OsString],
    machine: Machine,
    variable: impl Fn(&str) -> Option<OsString>,
) -> Option<String> {
    let words: Vec<&str> = command.iter().filter_map(|word| word.to_str()).collect();
    let mut remedies = Vec::new();
    let allowed = ["OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"]
        .iter()
        .all(|name| variable(name).is_some())
        || words.contains(&"--allow-run-as-root");
    if machine.is_root && !allowed {
        remedies.push("it does not run as root: add --allow-run-as-root".to_owned());
    }
    let is_roomy = |word: &&str| {
        let word = word.to_lowercase();
        ROOMY.iter().any(|part| word.contains(part))
    };
    if let Some(ranks) = ranks(&words).filter(|ranks| *ranks > machine.cores)
        && !words.iter().any(is_roomy)
        && !has_slots_elsewhere(&variable)
    {
        let option = if major < 5 { "--oversubscribe" } else { "--map-by :OVERSUBSCRIBE" };
        let cores = machine.cores;
        remedies.push(format!(
            "it starts as many ranks as there are cores, here {cores}, and {ranks} are asked for: add {option}"
        ));
    }
    let name = words.first().unwrap_or(&"mpirun");
    (!remedies.is_empty()).then(|| format!("{name} is that of Open MPI: {}", remedies.join("; ")))
}

/// Whether somebody else than the machine says how many slots there are: a setting, or a batch system.
fn has_slots_elsewhere(variable: impl Fn(&str) -> Option<OsString>) -> bool {
    [
        "OMPI_MCA_rmaps_base_oversubscribe",
        "PRTE_MCA_rmaps_default_mapping_policy",
        "OMPI_MCA_rmaps_base_mapping_policy",
        // A file of hosts, which says how many slots each has.
        "PRTE_MCA_prte_default_hostfile",
        "OMPI_MCA_orte_default_hostfile",
        "SLURM_JOB_ID",
        "PBS_NODEFILE",
        "LSB_JOBID",
    ]
    .iter()
    .any(|name| variable(name).is_some())
}

/// The number of ranks that a command asks for.
fn ranks(words: &[&str]) -> Option<usize> {
    let at = words.iter().position(|word| COUNT_OPTIONS.contains(word))?;
    words.get(at + 1)?.parse().ok()
}

/// The major version of Open MPI that a launcher says it is of: `mpirun (Open MPI) 5.0.8`, or by another name
/// `mpirun.openmpi (OpenRTE) 4.1.4`; its newer launchers are of PRRTE.
fn major_version(says: &str) -> Option<u32> {
    const OWN_NUMBER: [&str; 2] = ["Open MPI", "OpenRTE"];
    let has_own_number = |line: &str| OWN_NUMBER.iter().any(|name| line.contains(name));
    let line = says.lines().find(|line| has_own_number(line) || line.contains("PRRTE"))?;
    if !has_own_number(line) {
        return Some(5);
    }
    let number =
        line.split_whitespace().find(|word| word.starts_with(|it: char| it.is_ascii_digit()))?;
    number.split('.').next()?.parse().ok()
}

/// What a launcher says about itself.
fn version(program: &Path) -> Option<String> {
    let asked = Command::new(program)
        .arg("--version")
        .env_remove("LD_PRELOAD")
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output();
    String::from_utf8(asked.ok()?.stdout).ok()
}

/// The words behind `run` on a command line that was not understood.
pub(crate) fn words_after_run(
    mut arguments: impl Iterator<Item = OsString>,
) -> Option<Vec<OsString>> {
    let is_run = arguments.nth(1).is_some_and(|word| word == OsStr::new("run"));
    is_run.then(|| arguments.filter(|word| word != "--").collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    const NONE: fn(&str) -> Option<OsString> = |_| None;

    #[test]
    fn a_rank_of_several_is_no_place_for_run() {
        for name in RANKS {
            let variable = |asked: &str| (asked == name).then(|| OsString::from("4"));
            let told = wrong_way_round(variable, &words("./app 3")).unwrap();
            assert!(told.ends_with("tributary run -- mpirun -n 4 ./app 3"), "{told}");
            let alone = |asked: &str| (asked == name).then(|| OsString::from("1"));
            assert_eq!(wrong_way_round(alone, &words("./app")), None);
        }
        assert_eq!(wrong_way_round(NONE, &words("./app")), None);
    }

    #[test]
    fn what_open_mpi_lacks_on_a_small_machine_is_named() {
        let small = Machine { cores: 2, is_root: true };
        let large = Machine { cores: 64, is_root: false };
        let (five, four) = ("mpirun (Open MPI) 5.0.8\n", "mpirun (Open MPI) 4.1.4\n\nReport bugs");
        let told =
            |says, line, machine| remedy_of(major_version(says)?, &words(line), machine, NONE);
        let both = told(five, "mpirun -n 4 ./app", small).unwrap();
        assert!(both.contains("add --allow-run-as-root"), "{both}");
        assert!(
            both.contains("here 2, and 4 are asked for: add --map-by :OVERSUBSCRIBE"),
            "{both}"
        );
        let older = told(four, "mpirun --allow-run-as-root -np 4 ./app", small).unwrap();
        assert!(older.contains("add --oversubscribe") && !older.contains("root"), "{older}");
        assert!(told("prterun (PRRTE) 3.0.1", "mpirun -n 4 ./app", small).is_some());
        let debian = told("mpirun.openmpi (OpenRTE) 4.1.4\n", "mpirun -n 4 ./app", small).unwrap();
        assert!(debian.contains("add --oversubscribe"), "{debian}");
        for line in ["mpirun -n 4 ./app", "mpirun ./app"] {
            assert_eq!(told(five, line, large), None);
        }
        let enough = "mpirun --allow-run-as-root --map-by :OVERSUBSCRIBE -n 4 ./app";
        assert_eq!(told(five, enough, small), None);
        assert_eq!(
            told("HYDRA build details:\n    Version: 4.2", "mpirun -n 4 ./app", small),
            None
        );
        let set = |name: &str| {
            (name.starts_with("OMPI_") || name.starts_with("PRTE_")).then(OsString::new)
        };
        assert_eq!(remedy_of(5, &words("mpirun -n 4 ./app"), small, set), None);
    }

    #[test]
    fn the_words_behind_run_are_the_command() {
        let after = |line: &str| words_after_run(words(line).into_iter());
        assert_eq!(after("tributary run ./app 1"), Some(words("./app 1")));
        assert_eq!(after("tributary run -- ./app"), Some(words("./app")));
        assert_eq!(after("tributary status"), None);
    }
}
