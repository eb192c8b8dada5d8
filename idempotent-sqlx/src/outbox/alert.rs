//! Telling people of messages that were given up.
mod webhook;

use std::fmt;

use async_trait::async_trait;

pub use self::webhook::{Webhook, WebhookRequest};

/// A message that was given up: a person has to look after it.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Alarm {
    /// The table of the outbox.
    pub outbox: String,
    /// The message's number in it.
    pub seq: i64,
    /// Where it was to go.
    pub topic: String,
    /// How often it was sent.
    pub sends: u32,
    /// Why it was not accepted the last time, if it was not.
    pub last_error: Option<String>,
    /// Whether later messages of its aggregate wait for it: it was never sent, and order is kept until somebody sends it or
    /// voids it.
    pub holds_back: bool,
}

/// Who is told of messages that were given up.
#[async_trait]
pub trait Alert: fmt::Debug + Send + Sync + 'static {
    /// Tells somebody. Once for each message as a rule, before it is marked; twice if the relay dies in between. It is given
    /// 10 s, during which its relay waits.
    async fn raise(&self, alarm: &Alarm);
}

/// An error in the log, by `tracing`: the default.
#[derive(Clone, Copy, Debug, Default)]
pub struct LogAlert;

#[async_trait]
impl Alert for LogAlert {
    async fn raise(&self, alarm: &Alarm) {
        let Alarm { outbox, seq, topic, sends, last_error, holds_back } = alarm;
        tracing::error!(target: "idempotent", %outbox, seq, %topic, sends, last_error, holds_back,
            "a message was given up: resend or void it");
    }
}
