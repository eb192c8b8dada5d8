//! Kafka for the consumer runtime [`idempotent_mq`].
#![cfg_attr(docsrs, feature(doc_cfg))]
mod assignment;
mod builder;
mod dead_letters;
mod error;
mod group_events;
mod headers;
mod member;
mod message;
mod options;
mod partition;
mod producer;
mod publisher;
mod settler;
mod source;
mod topics;

pub use self::builder::{KafkaSourceBuilder, StartPosition};
pub use self::dead_letters::KafkaDeadLetters;
pub use self::options::KafkaOptions;
pub use self::publisher::KafkaPublisher;
pub use self::settler::KafkaTag;
pub use self::source::KafkaSource;
