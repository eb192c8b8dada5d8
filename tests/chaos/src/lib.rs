//! Workers that are real processes, on a real server, while both are killed, stopped and cut off from each other.
//!
//! Four plays: a store under test, whose deliveries come from the harness; (`mq`) a consumer of a real broker; (`inbox`) runs
//! in a transaction; and (`delivery`) producers and time.
//!
//! Read in this order: `wire` (what the harness and a worker say to each other), `worker` (a process that runs
//! deliveries through the executor), `journal` (how it writes down what it asks of the store), `plan` (what goes wrong
//! when), `broker` and `resource` (the outside world, in the harness), `process`, `fleet` and `crew` (the processes),
//! `server` and `target` (the servers and their faults) and `jobs` (one at a time), `harness` (one run), `verdict` (what it
//! came to). Then `mq`, `inbox`, and `delivery`.
#![allow(clippy::print_stderr, reason = "a command line tool, and its workers' logs")]
// The futures of RocketMQ's client are deep.
#![recursion_limit = "512"]
pub mod args;
mod broker;
mod crew;
pub mod delivery;
mod dice;
mod failed;
mod fleet;
pub mod harness;
pub mod inbox;
mod jobs;
mod journal;
mod mortal;
pub mod mq;
mod patience;
mod plan;
mod process;
mod resource;
mod server;
mod target;
mod time;
mod verdict;
pub mod weakness;
mod wire;
pub mod worker;
