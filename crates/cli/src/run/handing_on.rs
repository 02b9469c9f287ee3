//! Variables that a launcher does not hand on to other hosts by itself.
//!
//! Hydra and `srun` hand on all. Open MPI hands on its own; others have to be named, by `-x` or in a variable of its own.
//! Version 4 takes one of both: where the command has `-x`, this does too.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

/// Names of variables for Open MPI, with semicolons between them.
pub(super) const LIST: &str = "OMPI_MCA_mca_base_env_list";

/// The first major version that takes both ways at once.
const TAKES_BOTH: u32 = 5;

/// What has to be added for Open MPI to hand variables on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Addition {
    /// This variable.
    Variable(&'static str, OsString),
    /// The command with more words.
    Command(Vec<OsString>),
}

/// What has to be added to a command of Open MPI's version `major` for it to hand on the variables of these names, which are set.
/// `list` is what the user's [`LIST`] has.
pub(super) fn addition(
    major: u32,
    command: &[OsString],
    names: &[OsString],
    list: Option<&OsStr>,
) -> Addition {
    let has_options = command.iter().any(|word| word == "-x" || word == "--x");
    if major >= TAKES_BOTH || !has_options {
        let before = list.filter(|list| !list.is_empty()).map(OsStr::to_owned);
        let all: Vec<OsString> = before.into_iter().chain(names.iter().cloned()).collect();
        return Addition::Variable(LIST, all.join(OsStr::new(";")));
    }
    // Each program of a command with several has options of its own.
    let options = || names.iter().flat_map(|name| ["-x".into(), name.clone()]);
    let words = command.iter().enumerate().flat_map(|(at, word)| {
        let begins_program = at == 0 || word == ":";
        let more = begins_program.then(options).into_iter().flatten();
        std::iter::once(word.clone()).chain(more)
    });
    Addition::Command(words.collect())
}

/// Whether a variable of this name is one that ranks need to have as `tributary run` has it.
pub(super) fn is_needed(name: &OsStr) -> bool {
    let is_ours = name.as_bytes().starts_with(b"TRIBUTARY_");
    is_ours || name == "LD_PRELOAD" || name == "ASAN_OPTIONS"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn the_list_grows_and_the_command_only_where_version_4_has_options() {
        let names = words("LD_PRELOAD TRIBUTARY_REPORT");
        let plain = words("mpirun -n 4 ./app : -n 1 ./other");
        let added = |major, command: &[OsString], list| addition(major, command, &names, list);
        let list = |text: &str| Addition::Variable(LIST, text.into());
        assert_eq!(added(4, &plain, None), list("LD_PRELOAD;TRIBUTARY_REPORT"));
        let users = Some(OsStr::new("FOO=1;BAR"));
        assert_eq!(added(5, &plain, users), list("FOO=1;BAR;LD_PRELOAD;TRIBUTARY_REPORT"));
        let with_options = words("mpirun -x FOO -n 4 ./app : -n 1 ./other");
        assert_eq!(added(5, &with_options, None), list("LD_PRELOAD;TRIBUTARY_REPORT"));
        let both = "-x LD_PRELOAD -x TRIBUTARY_REPORT";
        let longer = format!("mpirun {both} -x FOO -n 4 ./app : {both} -n 1 ./other");
        assert_eq!(added(4, &with_options, None), Addition::Command(words(&longer)));
    }

    #[test]
    fn ranks_need_the_library_and_what_it_reads() {
        let needed = |name: &str| is_needed(OsStr::new(name));
        assert!(needed("LD_PRELOAD") && needed("TRIBUTARY_REPORT"));
        assert!(!needed("PATH") && !needed("MY_TRIBUTARY_FLAG"));
    }
}
