//! Discrete events in virtual time.
//!
//! Owns the clock, the event queue and the random numbers. Must not know networks. A run is a function
//! of the inputs and the seed.

mod event_queue;
mod random;
mod time;

pub use event_queue::EventQueue;
pub use random::Random;
pub use time::Picos;
