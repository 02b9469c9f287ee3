//! `tributary manual`: the help texts as manual pages.

use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::CommandFactory;

use crate::flags::Flags;

/// Writes a page for the program and one for each command that help shows.
pub(crate) fn write(folder: &Path) -> anyhow::Result<ExitCode> {
    clap_mangen::generate_to(Flags::command(), folder)
        .with_context(|| format!("FOLDER '{}'", folder.display()))?;
    Ok(ExitCode::SUCCESS)
}
