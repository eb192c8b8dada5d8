//! Workers that are real processes, on a real server, while both are killed, stopped and cut off from each other.
//!
//! Read in this order: `wire` (what the harness and a worker say to each other), `worker` (a process that runs
//! deliveries through the executor), `journal` (how it writes down what it asks of the store), `plan` (what goes wrong
//! when), `broker` and `resource` (the outside world, in the harness), `fleet` (the processes), `target` (the servers
//! and their faults), `harness` (one run), `verdict` (what it came to).
#![allow(clippy::print_stderr, reason = "a command line tool, and its workers' logs")]
pub mod args;
mod broker;
mod dice;
mod fleet;
pub mod harness;
mod journal;
mod mortal;
mod plan;
mod resource;
mod target;
mod time;
mod verdict;
pub mod weakness;
mod wire;
pub mod worker;
