//! Tests of the source, the publisher and the dead letters on moto, an emulator of SQS.
#![allow(clippy::panic, clippy::print_stdout, clippy::unwrap_used, missing_docs)]
mod answers;
mod conformance;
mod fifo;
mod holds;
mod outages;
mod publisher;
mod redrive;
mod security;
mod setup;
mod sizes;
mod world;
