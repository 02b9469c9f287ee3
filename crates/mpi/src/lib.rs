//! The C interface of the host library, which the MPI preload libraries are linked with.
//!
//! Owns the translation between C and `tributary-client`, and nothing else. The prototypes and
//! their meaning stand in `include/tributary_core.h`; the MPI side is C and lies in `shim/`. A panic
//! ends the process: nothing unwinds into C.
#![allow(unreachable_pub, reason = "C reaches these functions by name, not by path")]

mod communicator;
mod fast_path;
mod message;
mod names;
mod process;
mod publish;
mod request;
