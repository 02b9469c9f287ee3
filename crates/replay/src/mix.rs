//! Mix files: a program described by hand, in TOML.
//!
//! Owns the format, its bounds, and the mixes that come with the program.

mod file;
mod limits;
mod read;
mod shipped;
mod size;

pub use file::{Mix, MixCommunicator, MixPhase};
pub use read::read;
pub use shipped::{names, read_shipped, text};

#[cfg(test)]
mod tests;
