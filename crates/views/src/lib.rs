//! How results are shown: tables of one style for people, and a report as text, JSON and drawing.
//!
//! Owns layout, units and rounding. Must not know where what it shows comes from, nor where it goes.

pub mod report;
pub mod tables;
