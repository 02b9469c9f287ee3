//! The C interface of the host library, which the MPI preload library is linked with.
//!
//! Translates between C and `tributary-client`, and does nothing else. `include/tributary_core.h` has
//! the prototypes and what they ask of callers; the MPI side is C, in `shim/`. A panic ends the
//! process: nothing unwinds into C.
#![allow(unreachable_pub, reason = "C reaches these functions by name, not by path")]

mod combiner;
mod communicator;
mod done;
mod fast_path;
mod message;
mod names;
mod others;
mod prepared;
mod process;
mod publish;
mod request;
mod texts;
mod times;
mod trace;
