//! Asks a lab's switch for its counts.

use std::io::{self, Read as _};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use super::counts::SwitchCounts;
use crate::directory::Directory;

/// How long the switch may take to answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// Why a switch did not tell its counts.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AskError {
    /// It can't be reached, or ended before it had answered.
    #[error("the lab's switch does not answer")]
    Silent(#[from] io::Error),
    /// Its answer is of another version of this program.
    #[error("the lab's switch gave an answer of another version")]
    Version(#[from] serde_json::Error),
}

/// What the switch of the lab in a folder has done so far.
///
/// # Errors
/// If it does not answer.
pub fn ask(directory: &Directory) -> Result<SwitchCounts, AskError> {
    let mut stream = UnixStream::connect(directory.switch_socket())?;
    stream.set_read_timeout(Some(ANSWER_WITHIN))?;
    let mut text = Vec::new();
    stream.read_to_end(&mut text)?;
    Ok(serde_json::from_slice(&text)?)
}
