//! Chaos tests: worker processes on real servers, while both are killed, stopped and disconnected.
//!
//! There are four plays: a store, whose deliveries the harness sends; a consumer of a real broker (`mq`); runs in a
//! transaction (`inbox`); and producers and times (`delivery`).
//!
//! Read in this order: `wire` (the messages between the harness and a worker), `worker` (a process that handles
//! deliveries with the executor), `journal` (the record of its store calls), `plan` (the times of the faults),
//! `broker` and `resource` (the simulated outside world), `process`, `fleet` and `workers` (the processes), `server` and
//! `target` (the servers and their faults), `jobs` (faults, one at a time), `harness` (one run), `verdict`. Then read
//! `mq`, `inbox`, and `delivery`.
#![allow(clippy::print_stderr, reason = "a command line tool, and its workers' logs")]
// The futures of RocketMQ's client are deep.
#![recursion_limit = "512"]
pub mod args;
pub mod broken_stores;
mod broker;
mod deadline;
pub mod delivery;
mod dice;
mod dying_store;
mod failed;
mod fleet;
pub mod harness;
pub mod inbox;
mod jobs;
mod journal;
pub mod mq;
mod named;
mod plan;
mod process;
mod resource;
mod server;
mod target;
mod time;
mod verdict;
mod wire;
pub mod worker;
mod workers;
