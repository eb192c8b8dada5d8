//! The commands for dead letters.
mod arguments;
mod command;
mod delay;
mod rabbitmq;
mod redis_streams;
mod site;
