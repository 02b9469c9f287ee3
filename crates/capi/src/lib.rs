//! `libsharp_coll`: the client interface of SHARP over the host library.
//!
//! Owns the C interface of `include/sharp/api/sharp_coll.h`: [`abi`] has its structs, `interface` its
//! functions, and the rest turns what clients ask for into calls of `tributary-client`. Must not know how an
//! operation runs. Clients leave what they do not use uninitialised, call from any thread, and free in any
//! order; `docs/sharp.md` has what they rely on. A panic ends the process: nothing unwinds into C.

pub mod abi;
mod collectives;
mod communicator;
mod context;
mod environment;
pub mod failure;
mod handles;
pub mod interface;
pub mod log;
mod memory;
mod numbers;
mod out_of_band;
mod report;
mod request;
mod windows;
mod work;
