//! Goal: whatever tree, whatever timing, every member gets exactly the result that reducing in
//! tree order gives, and a failure reaches everyone and frees everything.
//!
//! Method: whole trees of real machines over virtual links, from a seed. A *scenario* holds all
//! that decides results; a *timing* holds delays, link sizes and disorder. The same scenario under
//! different timings must give the same bits.

mod failures;
mod honest;
mod link;
mod lossy;
mod member;
mod plan;
mod streams;
mod world;
