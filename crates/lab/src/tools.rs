//! Runs the system's network tools, and reports their errors with the failing line.
//!
//! `ip` and `tc` come with iproute2, `nft` with nftables. Each call runs a whole script, so that a
//! lab needs few processes.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::network::LinkOptions;

/// A tool that this crate runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tool {
    /// Links and addresses.
    Ip,
    /// Rates.
    Tc,
    /// Losses and blocked multicast.
    Nft,
}

/// Why a tool failed.
#[derive(Debug, thiserror::Error)]
pub enum ToolError {
    /// It is not installed.
    #[error("{tool} is not installed: it is in the package {package} (`make lab-tools`)")]
    Missing {
        /// Its name.
        tool: &'static str,
        /// Debian's name of its package.
        package: &'static str,
    },
    /// It did not start, or ended before it had read its script.
    #[error("{command}: {source}")]
    Start {
        /// What was run.
        command: String,
        /// Why not.
        source: io::Error,
    },
    /// It refused its script.
    #[error("{command}: {said}{line}")]
    Refused {
        /// What was run.
        command: String,
        /// What it wrote, on one line.
        said: String,
        /// The line of the script it names, if it names one.
        line: String,
    },
}

/// Folders of tools that are not on every user's PATH.
const MORE_FOLDERS: [&str; 3] = ["/usr/sbin", "/sbin", "/usr/local/sbin"];

impl Tool {
    fn name(self) -> &'static str {
        match self {
            Self::Ip => "ip",
            Self::Tc => "tc",
            Self::Nft => "nft",
        }
    }

    fn package(self) -> &'static str {
        match self {
            Self::Ip | Self::Tc => "iproute2",
            Self::Nft => "nftables",
        }
    }

    fn arguments(self) -> &'static [&'static str] {
        match self {
            Self::Ip | Self::Tc => &["-batch", "-"],
            Self::Nft => &["-f", "-"],
        }
    }

    /// Its path.
    ///
    /// # Errors
    /// If it is not installed.
    pub(crate) fn find(self) -> Result<PathBuf, ToolError> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&path)
            .chain(MORE_FOLDERS.iter().map(PathBuf::from))
            .map(|folder| folder.join(self.name()))
            .find(|path| path.is_file())
            .ok_or(ToolError::Missing { tool: self.name(), package: self.package() })
    }

    /// Runs a script. Does nothing for an empty script.
    ///
    /// # Errors
    /// If the tool is missing, or refuses any line.
    pub(crate) fn run(self, script: &str) -> Result<(), ToolError> {
        if script.is_empty() {
            return Ok(());
        }
        let path = self.find()?;
        let command = format!("{} {}", path.display(), self.arguments().join(" "));
        let start = |source| ToolError::Start { command: command.clone(), source };
        let (status, said) = feed(&path, self.arguments(), script).map_err(start)?;
        if status.success() {
            return Ok(());
        }
        Err(ToolError::Refused {
            line: find_named_line(&said, script),
            said: one_line(&said),
            command,
        })
    }
}

/// The tools that links with these options need.
///
/// # Errors
/// Names the first that is not installed.
pub(crate) fn check(links: &LinkOptions) -> Result<(), ToolError> {
    Tool::Ip.find()?;
    if links.has_delay() {
        return Ok(());
    }
    if links.rate.is_some() {
        Tool::Tc.find()?;
    }
    if !links.loss.is_none() || links.blocks_multicast {
        Tool::Nft.find()?;
    }
    Ok(())
}

fn feed(
    program: &Path,
    arguments: &[&str],
    script: &str,
) -> io::Result<(std::process::ExitStatus, String)> {
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()?;
    let written = child.stdin.take().expect("piped above").write_all(script.as_bytes());
    let output = child.wait_with_output()?;
    if output.status.success() {
        // A tool that did not read the whole script has not done all of it.
        written?;
    }
    Ok((output.status, String::from_utf8_lossy(&output.stderr).into_owned()))
}

fn one_line(text: &str) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    lines.join("; ")
}

/// The script's line that `ip` and `tc` name as `Command failed -:N`.
fn find_named_line(said: &str, script: &str) -> String {
    let number = said
        .split("Command failed -:")
        .nth(1)
        .and_then(|rest| rest.lines().next()?.trim().parse::<usize>().ok()?.checked_sub(1));
    match number.and_then(|number| script.lines().nth(number)) {
        Some(line) => format!("; in '{line}'"),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn complaints_name_the_line() {
        let said = "RTNETLINK answers: File exists\nCommand failed -:2\n";
        assert_eq!(find_named_line(said, "a\nlink add x\n"), "; in 'link add x'");
        assert_eq!(find_named_line("no such thing", "a\n"), "");
        assert_eq!(find_named_line("Command failed -:7", "a\n"), "");
        assert_eq!(one_line(said), "RTNETLINK answers: File exists; Command failed -:2");
    }

    #[test]
    fn an_empty_script_runs_nothing() {
        Tool::Nft.run("").unwrap();
    }
}
