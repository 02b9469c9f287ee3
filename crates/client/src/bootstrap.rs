//! How the processes of a job find each other before there is anything of ours between them.

/// What the launcher's world offers: the underlying MPI's own collectives, pipes to
/// the parent under `tributary bench`.
///
/// One value stands for one communicator at one rank. Every method is collective over it.
pub trait Bootstrap {
    /// This process's rank in the communicator.
    fn rank(&self) -> u32;

    /// Ranks in the communicator.
    fn size(&self) -> u32;

    /// Whether this is an MPI, which carries what is not offloaded.
    fn is_mpi(&self) -> bool {
        false
    }

    /// Gathers every rank's `mine`, of equal lengths, in rank order into `all`
    /// (`mine.len() * size` bytes). Also a barrier.
    ///
    /// # Errors
    /// If the exchange failed; the communicator is then of no further use.
    fn allgather(&mut self, mine: &[u8], all: &mut [u8]) -> Result<(), BootstrapError>;

    /// Replaces every rank's `bytes`, of equal lengths, by those of `root`.
    ///
    /// # Errors
    /// As [`Bootstrap::allgather`].
    fn broadcast(&mut self, root: u32, bytes: &mut [u8]) -> Result<(), BootstrapError> {
        let mut all = vec![0; bytes.len() * self.size() as usize];
        self.allgather(bytes, &mut all)?;
        let first = bytes.len() * root as usize;
        bytes.copy_from_slice(&all[first..first + bytes.len()]);
        Ok(())
    }
}

/// The launcher's world failed to exchange bytes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("exchange between the job's processes failed: {0}")]
pub struct BootstrapError(pub String);

/// A rank by itself.
#[cfg(test)]
pub(crate) struct Alone;

#[cfg(test)]
impl Bootstrap for Alone {
    fn rank(&self) -> u32 {
        0
    }

    fn size(&self) -> u32 {
        1
    }

    fn allgather(&mut self, mine: &[u8], all: &mut [u8]) -> Result<(), BootstrapError> {
        all.copy_from_slice(mine);
        Ok(())
    }
}

/// Sends a text of any length from `root` to everyone.
pub(crate) fn broadcast_text(
    bootstrap: &mut dyn Bootstrap,
    root: u32,
    text: &str,
) -> Result<String, BootstrapError> {
    let mut length = (text.len() as u64).to_le_bytes();
    bootstrap.broadcast(root, &mut length)?;
    let length = u64::from_le_bytes(length) as usize;
    let mut bytes = text.as_bytes().to_vec();
    bytes.resize(length, 0);
    bootstrap.broadcast(root, &mut bytes)?;
    String::from_utf8(bytes).map_err(|_| BootstrapError("a text arrived damaged".to_owned()))
}

/// Every rank's text, cut to `TEXT_BYTES_MAX` bytes, in rank order.
pub(crate) fn allgather_texts(
    bootstrap: &mut dyn Bootstrap,
    text: &str,
) -> Result<Vec<String>, BootstrapError> {
    let mut mine = [0; TEXT_BYTES_MAX];
    let cut = text.floor_char_boundary(TEXT_BYTES_MAX);
    mine[..cut].copy_from_slice(&text.as_bytes()[..cut]);
    let mut all = vec![0; TEXT_BYTES_MAX * bootstrap.size() as usize];
    bootstrap.allgather(&mine, &mut all)?;
    all.chunks_exact(TEXT_BYTES_MAX)
        .map(|chunk| {
            let end = chunk.iter().position(|byte| *byte == 0).unwrap_or(TEXT_BYTES_MAX);
            String::from_utf8(chunk[..end].to_vec())
                .map_err(|_| BootstrapError("a text arrived damaged".to_owned()))
        })
        .collect()
}

/// Room for one rank's text: a host name with its boot id, or one line of error.
const TEXT_BYTES_MAX: usize = 192;
