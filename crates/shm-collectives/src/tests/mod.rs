//! Whole groups, as threads and as processes, compared with an oracle.

mod confined;
pub(super) mod death;
mod disagreement;
mod kernels;
mod kill;
mod late;
mod processes;
mod script;
mod threads;
