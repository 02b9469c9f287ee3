//! Whole groups, as threads and as processes, compared with an oracle.

mod confined;
mod kernels;
mod processes;
mod script;
mod threads;
