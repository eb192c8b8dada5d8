//! The commands for dead letters.
mod arguments;
mod brokers;
mod delay;
mod delay_table;
pub(crate) mod rabbitmq;
mod redis_streams;
#[cfg(feature = "rocketmq")]
mod rocketmq;
pub(crate) mod site;
