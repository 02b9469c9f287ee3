//! Random systems under random faults, checked for safety first and for liveness after.
