//! Tests of the backend on moto, an emulator of DynamoDB, and on servers with scripted answers.
#![allow(clippy::panic, clippy::unwrap_used, missing_docs)]
mod answers;
mod laws;
mod outages;
mod records;
mod scripted;
mod setup;
mod world;
