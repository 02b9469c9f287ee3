//! Discrete events in virtual time.
//!
//! Owns the clock, the queue of what is to happen, and randomness. Knows nothing of networks. All
//! of it is a function of the inputs and the seed: same seed, same run.

mod agenda;
mod chance;
mod clock;

pub use agenda::Agenda;
pub use chance::Chance;
pub use clock::Picos;
