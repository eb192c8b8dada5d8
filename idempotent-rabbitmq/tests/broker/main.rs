//! Against a real RabbitMQ.
#![allow(clippy::unwrap_used, clippy::panic, unreachable_pub, reason = "tests")]
mod acks;
mod dead_letters;
mod exchanges;
mod outages;
mod publisher;
mod redrive;
mod refusals;
mod retries;
mod runtime;
mod together;
mod world;
