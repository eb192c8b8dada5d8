//! Tests of the examples from outside, as programs on private servers.
#![allow(clippy::expect_used, clippy::panic, clippy::print_stdout, clippy::unwrap_used, missing_docs)]
mod apalis;
mod brokers;
mod browser;
mod console;
mod consume;
#[cfg(feature = "dynamodb")]
mod dynamodb;
mod example;
#[cfg(feature = "kafka")]
mod kafka;
#[cfg(feature = "dynamodb")]
mod lambda;
mod lateness;
mod nats;
mod order_service;
mod order_steps;
mod order_timeout;
mod outbox;
mod payment_callback;
mod pgmq;
mod poem;
mod rabbitmq;
mod redis_streams;
mod redrive;
mod rest;
#[cfg(feature = "rocketmq")]
mod rocketmq;
mod ruststream;
mod schedule;
#[cfg(feature = "sqs")]
mod sqs;
mod tiers;
mod wait;
