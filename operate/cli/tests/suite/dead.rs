//! The commands for dead letters.
mod arguments;
pub(crate) mod command;
mod delay;
mod delay_table;
mod nats;
pub(crate) mod rabbitmq;
mod redis_streams;
#[cfg(feature = "rocketmq")]
mod rocketmq;
pub(crate) mod site;
