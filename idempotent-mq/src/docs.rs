//! Guides. The examples in them are compiled and run as tests.

#[doc = include_str!("docs/source.md")]
/// ```
/// use std::sync::{Arc, Mutex};
///
/// use async_trait::async_trait;
/// use idempotent_mq::{
///     SourceCapabilities, DeadLetter, DelaySupport, Delivery, Received, Settle, Settlement, Source, SourceError, SourceErrorKind,
/// };
/// use tokio::sync::mpsc;
///
#[doc = include_str!("docs/queue.rs")]
/// # let (queue, source) = queue();
/// # queue.messages.send(Delivery::new(idempotent_mq::Position::of("orders"), Vec::new())).ok();
/// # drop(source);
/// ```
#[doc = include_str!("docs/promises.md")]
pub mod source {}

#[doc = include_str!("docs/brokers.md")]
pub mod brokers {}
