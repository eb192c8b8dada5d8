//! Short runs of the real thing: what it shows, what it refuses, and how it ends.
#![allow(clippy::unwrap_used, clippy::print_stdout)]
mod brokers;
mod command;
mod delivery;
mod inbox;
mod stores;
