//! What a hostile reader of the executor and the stores went for. Each test states what the docs promise; each was red
//! once.

mod batches;
mod chaos;
mod clocks;
mod edges;
mod leases;
mod rules;
mod runtimes;
mod stores;
