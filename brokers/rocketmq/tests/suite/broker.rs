//! The source and the publisher on a real broker.
mod closing;
mod consumer_outages;
mod dead_letters;
mod delayed;
mod deliveries;
mod orderly;
mod outbox;
mod publisher_outages;
mod redrive;
mod runtime;
mod security;
mod world;
