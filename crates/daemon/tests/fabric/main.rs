//! A real manager and real aggregators, on loopback, in this process; peers that speak raw frames.

#![allow(clippy::unwrap_used, reason = "a test that finds no value has failed")]

mod authentication;
mod common;
mod communicators;
mod datagrams;
mod encryption;
mod groups;
mod kernel;
mod misbehaviour;
#[path = "../../../client/tests/ranks/mod.rs"]
mod ranks;
mod recovery;
mod resources;
mod streams;
mod tenants;
mod tuning;
mod versions;
