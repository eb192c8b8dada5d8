//! Alerts: what a person has to look at, grouped and sent.
//!
//! Sources [raise](Alerts::raise) an [`Alert`]; [`Alerts`] groups equal ones, limits their rate, and hands each group to its
//! [`AlertSender`]s on a task of its own.
mod dispatch;
mod groups;
mod observer;
mod sending;

use std::borrow::Cow;
use std::fmt;
use std::panic::AssertUnwindSafe;

use async_trait::async_trait;
use futures_util::FutureExt;

pub use self::dispatch::{AlertCounts, AlertSetupError, Alerts, AlertsBuilder};
pub use self::observer::AlertObserver;
use crate::Timestamp;
use crate::units::start_of;

/// A problem that the library does not solve by itself, and how often it occurred.
///
/// An alert names scopes, groups, tables, queues and topics. It contains no idempotency key, no message id and nothing of a
/// payload, except in [`detail`](Self::detail).
#[derive(Clone, Eq, PartialEq)]
#[non_exhaustive]
pub struct Alert {
    /// The kind of problem.
    pub kind: AlertKind,
    /// The scope of the run, the group of the consumer, or the table of the outbox.
    pub scope: Cow<'static, str>,
    /// The queue or topic, if the problem has one.
    pub source: Option<Cow<'static, str>>,
    /// The cause within the kind, one of a fixed set of texts.
    pub cause: Option<&'static str>,
    /// The message that an outbox has given up. In a group, the first one.
    pub given_up: Option<GivenUp>,
    /// The number of alerts: 1 for a single one, and more for a group.
    pub count: u64,
    /// The time of the first alert.
    pub first_at: Timestamp,
    /// The time of the last alert.
    pub last_at: Timestamp,
    detail: Option<Cow<'static, str>>,
}

impl Alert {
    /// The longest [`detail`](Self::detail) in bytes; a longer text is cut.
    pub const MAX_DETAIL: usize = 1_000;

    /// Returns an alert of this kind that occurred once, at this time.
    #[must_use]
    pub fn new(kind: AlertKind, scope: impl Into<Cow<'static, str>>, at: Timestamp) -> Self {
        Self {
            kind,
            scope: scope.into(),
            source: None,
            cause: None,
            given_up: None,
            count: 1,
            first_at: at,
            last_at: at,
            detail: None,
        }
    }

    /// Sets the queue or topic.
    #[must_use]
    pub fn source(mut self, source: impl Into<Cow<'static, str>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// Sets the cause. Alerts of one kind, scope, source and cause are one group.
    #[must_use]
    pub fn cause(mut self, cause: &'static str) -> Self {
        self.cause = Some(cause);
        self
    }

    /// Sets the message that an outbox has given up.
    #[must_use]
    pub fn given_up(mut self, message: GivenUp) -> Self {
        self.given_up = Some(message);
        self
    }

    /// Sets a text that may contain data of the application; see [`detail`](Self::detail).
    #[must_use]
    pub fn with_detail(mut self, detail: impl Into<Cow<'static, str>>) -> Self {
        let detail = detail.into();
        let start = start_of(&detail, Self::MAX_DETAIL);
        self.detail = Some(if start.len() < detail.len() { start.to_owned().into() } else { detail });
        self
    }

    /// Returns the text of the last error of the first alert in the group: a handler's error, or a broker's.
    ///
    /// **An error text of a handler may contain whatever the handler puts into it**, payload included. The senders of this
    /// project include the detail only after `with_details`.
    #[must_use]
    pub fn detail(&self) -> Option<&str> {
        self.detail.as_deref()
    }

    /// Returns one line about the problem, without the detail.
    #[must_use]
    pub fn summary(&self) -> String {
        let mut line = format!("{}: {}", self.kind, self.scope);
        if let Some(source) = &self.source {
            line.push_str(&format!(", {source}"));
        }
        if let Some(cause) = self.cause {
            line.push_str(&format!(" ({cause})"));
        }
        if self.count > 1 {
            line.push_str(&format!(", {} times", self.count));
        }
        line
    }
}

/// Shows the alert without its detail, which may contain data of the application.
impl fmt::Debug for Alert {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Alert")
            .field("kind", &self.kind)
            .field("scope", &self.scope)
            .field("source", &self.source)
            .field("cause", &self.cause)
            .field("given_up", &self.given_up)
            .field("count", &self.count)
            .finish_non_exhaustive()
    }
}

/// A message that an outbox has given up.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct GivenUp {
    /// The number of its row in the outbox's table, which is neither the message's id nor its key.
    pub seq: i64,
    /// The number of times the message was sent.
    pub sends: u32,
    /// True if later messages of its aggregate wait: the message was never sent, and the order is kept until the message is resent
    /// or voided.
    pub holds_back: bool,
}

impl GivenUp {
    /// Returns the message in this row, sent this often.
    #[must_use]
    pub fn new(seq: i64, sends: u32, holds_back: bool) -> Self {
        Self { seq, sends, holds_back }
    }
}

/// The kind of an [`Alert`].
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
#[non_exhaustive]
pub enum AlertKind {
    /// A consumer has dead-lettered a message.
    DeadLetter,
    /// A message is held or was dead-lettered, because its predecessor will not be consumed without intervention.
    OrderHeld,
    /// A message ran although its predecessor was not consumed.
    OrderBroken,
    /// A run of several steps cannot go on: a step's result is unknown, or the handler's steps have changed.
    StepsParked,
    /// A runtime is blocked for longer than two heartbeats of a lease.
    RuntimeBlocked,
    /// A lease was lost while its handler ran: its heartbeats did not get through in time.
    LeaseLost,
    /// An outbox has given a message up.
    MessageGivenUp,
}

impl AlertKind {
    /// Returns the name of the kind in logs, webhooks and e-mails: words with underscores.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::DeadLetter => "dead_letter",
            Self::OrderHeld => "order_held",
            Self::OrderBroken => "order_broken",
            Self::StepsParked => "steps_parked",
            Self::RuntimeBlocked => "runtime_blocked",
            Self::LeaseLost => "lease_lost",
            Self::MessageGivenUp => "message_given_up",
        }
    }

    /// Returns the remedy for the problem.
    #[must_use]
    pub fn remedy(self) -> &'static str {
        match self {
            Self::DeadLetter => "look at the dead letter, repair its cause, and redrive it",
            Self::OrderHeld => "repair or forget the predecessor: messages after it do not run until then",
            Self::OrderBroken => "check the effect of the message: it ran out of order",
            Self::StepsParked => "find out which steps took effect, repair their effects, and forget the key",
            Self::RuntimeBlocked => "run blocking code in tokio::task::spawn_blocking",
            Self::LeaseLost => "check the connection to the store: another worker may have run the same key",
            Self::MessageGivenUp => "resend or void the message",
        }
    }
}

impl fmt::Display for AlertKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A destination of alerts.
///
/// Use one with [`AlertsBuilder::sender`], which groups alerts and limits their rate.
#[async_trait]
pub trait AlertSender: fmt::Debug + Send + Sync + 'static {
    /// Sends an alert. [`Alerts`] allows 10 s for it, and repeats a failed call up to two times, so that an alert may arrive
    /// twice.
    ///
    /// # Errors
    /// [`AlertError`]: the alert is not known to have arrived.
    ///
    /// # Cancellation
    /// The alert may have been sent or not.
    async fn send(&self, alert: &Alert) -> Result<(), AlertError>;
}

/// Sends an alert by a sender of the user. A panic is an error.
pub async fn send_guarded(sender: &dyn AlertSender, alert: &Alert) -> Result<(), AlertError> {
    let sending = AssertUnwindSafe(async { sender.send(alert).await }).catch_unwind();
    sending.await.unwrap_or_else(|_| Err(AlertError::new("the sender panicked")))
}

/// An error of an [`AlertSender`]. Its text goes to the log: it must contain no secret.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("the alert was not sent: {reason}")]
pub struct AlertError {
    reason: Cow<'static, str>,
}

impl AlertError {
    /// Returns an error with this reason.
    pub fn new(reason: impl Into<Cow<'static, str>>) -> Self {
        Self { reason: reason.into() }
    }
}

/// A sender that writes alerts to `tracing`, as errors with the target `idempotent`.
#[derive(Clone, Copy, Debug, Default)]
pub struct AlertLog {
    details: bool,
}

impl AlertLog {
    /// Returns a sender that leaves [details](Alert::detail) out.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Includes [`Alert::detail`], which may contain data of the application.
    #[must_use]
    pub fn with_details(mut self) -> Self {
        self.details = true;
        self
    }
}

#[async_trait]
impl AlertSender for AlertLog {
    async fn send(&self, alert: &Alert) -> Result<(), AlertError> {
        let (kind, scope, source, cause) = (alert.kind.name(), &*alert.scope, alert.source.as_deref(), alert.cause);
        let (count, remedy) = (alert.count, alert.kind.remedy());
        let detail = alert.detail().filter(|_| self.details);
        let given_up = alert.given_up.as_ref();
        let (seq, sends) = (given_up.map(|message| message.seq), given_up.map(|message| message.sends));
        let holds_back = given_up.filter(|message| message.holds_back).map(|_| true);
        tracing::error!(target: "idempotent", kind, scope, source, cause, count, seq, sends, holds_back, detail, "alert: {remedy}");
        Ok(())
    }
}
