//! What stages that work in their host and between hosts say when they can't go on.

use tributary_shm_collectives::Lost;
use tributary_tuning::Method;
use tributary_wire::frame::Abort;

/// The rank or host that failed.
pub(super) enum Failure {
    /// A rank of this host.
    Host(Lost),
    /// The group of leaders, in this method.
    InterHost(Method, Abort),
}
