//! What a waiting rank does besides waiting.

use std::sync::Arc;

/// Called now and then while an operation waits long, from the waiting thread: the underlying MPI needs
/// it to progress its own messages. Must not call into the communicator that waits.
pub type ProgressHook = Arc<dyn Fn() -> Verdict + Send + Sync>;

/// What a [`ProgressHook`] says of the communicator that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The wait goes on.
    GoOn,
    /// The program has given the communicator up, here or at another rank; see
    /// [`Communicator::give_up`](crate::Communicator::give_up).
    GiveUp,
}
