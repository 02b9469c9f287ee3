//! `libtributary_exact_c`: exact sums for C and Fortran. The header `tributary_exact.h` says what each function does.
//!
//! Translates between C and `tributary-exact`. Must not know MPI: the header's functions call the program's own.

mod accumulator;
mod arrays;
