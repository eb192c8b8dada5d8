//! The source on a real server: what becomes of entries, and what of the consumer when something fails.
mod cases;
mod consumer;
mod dead;
mod failing;
mod owner;
mod publisher;
mod redrive;
mod rights;
mod settle;
mod setup;
mod world;
