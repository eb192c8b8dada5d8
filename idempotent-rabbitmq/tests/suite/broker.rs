//! Against a real RabbitMQ.
mod acks;
mod dead_letters;
mod delayed;
mod dropped;
mod exchanges;
mod outages;
mod publisher;
mod redrive;
mod refusals;
mod retries;
mod runtime;
mod silent;
mod together;
mod topology;
mod world;
