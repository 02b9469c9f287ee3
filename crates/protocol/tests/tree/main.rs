//! Goal: for every tree and timing, every member gets exactly the result of reducing in tree order,
//! and a failure reaches all members and frees everything.
//!
//! Method: whole trees of the real machines over virtual links, drawn from a seed. A *scenario*
//! holds all that decides results; a *timing* holds delays, link sizes and disorder. The same
//! scenario must give the same bits under different timings.

mod failures;
mod honest;
mod link;
mod lossy;
mod member;
mod plan;
mod streams;
mod world;
