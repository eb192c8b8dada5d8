//! Tests of the source and the publisher on a real RabbitMQ.
mod acknowledgements;
mod broker_dead_letters;
mod cluster;
mod confirm_time;
mod dead_letters;
mod delayed;
mod exchanges;
mod outages;
mod outbox;
mod publisher;
mod redrive;
mod refusals;
mod retries;
mod runtime;
mod topology;
mod unresponsive;
mod world;
