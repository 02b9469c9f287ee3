//! A real manager and real nodes, on loopback, in this process; peers that speak raw frames.

mod common;
mod groups;
mod misbehaviour;
mod resources;
