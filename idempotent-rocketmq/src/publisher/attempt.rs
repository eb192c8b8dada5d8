//! One try.
use std::sync::Arc;

use rocketmq_client_rust::ClientError;
use tokio::time::{Instant, timeout_at};

use super::{Inner, PublishError, PublishErrorKind};
use crate::client::{Outbound, Sender, Unsent};
use crate::error::{is_final, is_not_stored, is_unknown_topic, refusal};
use crate::place::{Choice, Place};
use crate::topics::{OF_EACH_BROKER, PATTERN};

/// A try that failed.
pub(super) struct Failed {
    pub(super) text: Box<str>,
    cause: Option<ClientError>,
    /// It may have arrived.
    pub(super) unsure: bool,
    /// Another one would fail the same way.
    pub(super) is_final: bool,
}

impl Inner {
    /// One try, which ends by then.
    pub(super) async fn attempt(&self, outbound: Outbound, to: Choice, end: Instant) -> Result<Option<Place>, Failed> {
        let sender = timeout_at(end, self.ready(&outbound.topic)).await.unwrap_or_else(|_| Err(Failed::late(false)))?;
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Failed::late(false));
        }
        let topic = outbound.topic.clone();
        // Of the two the client gives up first: it knows more.
        let put = timeout_at(end, sender.put(outbound, to, left * 9 / 10)).await;
        let failed = match put {
            Ok(Ok(place)) => return Ok(place),
            Ok(Err(unsent)) => Failed::of(unsent),
            Err(_) => Failed::late(true),
        };
        if !failed.unsure {
            // It may be gone.
            self.known().remove(&topic);
        }
        Err(failed)
    }

    /// A client, and a topic that takes messages: asked for before the first is sent. Of what fails then, it is known that
    /// nothing left this process.
    async fn ready(&self, topic: &str) -> Result<Arc<Sender>, Failed> {
        let sender = self.sender().await.map_err(Failed::before)?;
        if !self.knows(topic) {
            // One asks, the others wait for the answer.
            let _asking = self.asking.lock().await;
            if !self.knows(topic) {
                reached(&sender, topic).await?;
                self.known().insert(topic.to_owned());
            }
        }
        Ok(sender)
    }
}

/// Whether a message to this topic has anywhere to go.
async fn reached(sender: &Sender, topic: &str) -> Result<(), Failed> {
    let Err(error) = sender.queues(topic).await else { return Ok(()) };
    // Not there, and made by a broker as soon as something is sent to it.
    if sender.queues(PATTERN).await.is_ok() {
        return Ok(());
    }
    // While there is no broker, no topic is known.
    if is_unknown_topic(&error) && sender.queues(OF_EACH_BROKER).await.is_ok() {
        return Err(Failed::missing(error));
    }
    Err(Failed::before(error))
}

impl Failed {
    fn of(unsent: Unsent) -> Self {
        let (text, cause): (Box<str>, _) = match unsent {
            Unsent::Weak(status) => (format!("the broker has not kept it as it should: {status:?}").into(), None),
            Unsent::Ended => ("the client has ended".into(), None),
            Unsent::Failed(error) => {
                let text = refusal(&error).map_or_else(|| format!("sending failed: {error}").into(), Into::into);
                (text, Some(error))
            }
        };
        let is_final = cause.as_ref().is_some_and(is_final);
        let unsure = !cause.as_ref().is_some_and(is_not_stored);
        Self { text, cause, unsure, is_final }
    }

    /// Before anything was sent.
    fn before(error: ClientError) -> Self {
        Self { unsure: false, ..Self::of(Unsent::Failed(error)) }
    }

    fn missing(error: ClientError) -> Self {
        let text = "no broker has this topic open, and they make none by themselves: make it first".into();
        Self { text, cause: Some(error), unsure: false, is_final: true }
    }

    fn late(sent: bool) -> Self {
        let text = if sent { "no answer in time" } else { "no turn came in time" };
        Self { text: text.into(), cause: None, unsure: sent, is_final: false }
    }

    /// A word on this try says nothing of those before it.
    pub(super) fn told(self, unsure: bool) -> PublishError {
        let kind = match (unsure, self.is_final) {
            (true, _) => PublishErrorKind::Unconfirmed,
            (false, true) => PublishErrorKind::Refused,
            (false, false) => PublishErrorKind::NotSent,
        };
        PublishError::new(kind, self.text, self.cause.map(Into::into))
    }
}
