//! The source and the publisher on a real broker.
mod closing;
mod connect_errors;
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
mod silent;
mod sizes;
mod unreadable;
mod world;
