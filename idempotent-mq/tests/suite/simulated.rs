//! The consumer on a simulated broker and a virtual clock.
mod alerts;
mod attempts;
mod batch;
mod breaker;
mod bulk;
mod chain;
mod chain_and_sequence;
mod drain;
mod flow;
mod handlers;
mod in_flight;
mod inputs;
mod message_log;
mod order;
mod partitions;
mod points;
mod storm;
