//! Tests against real servers, one module for each subject, in one binary: it is linked once, and what is generic is
//! compiled once.
#![allow(clippy::expect_used, clippy::panic, clippy::print_stdout, clippy::unwrap_used, missing_docs)]
#[macro_use]
mod delay;

mod behaviour;
mod cache;
mod conformance;
mod delay_mutants;
mod fake;
mod faults;
mod guards;
mod lane;
mod lua;
mod mutants;
mod records;
mod review;
mod startup;
mod support;
mod tiered;
mod topology;
mod watch;
mod words;
