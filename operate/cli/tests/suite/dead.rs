//! The commands for dead letters.
mod arguments;
pub(crate) mod command;
mod delay;
mod delay_table;
#[cfg(feature = "kafka")]
mod kafka;
mod nats;
mod pgmq;
pub(crate) mod rabbitmq;
mod redis_streams;
#[cfg(feature = "rocketmq")]
mod rocketmq;
pub(crate) mod site;
#[cfg(feature = "sqs")]
mod sqs;
