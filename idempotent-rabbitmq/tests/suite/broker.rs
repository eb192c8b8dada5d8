//! Against a real RabbitMQ.
mod batch;
mod batched_acks;
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
mod topology;
mod world;
