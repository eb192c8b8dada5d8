//! One try.
use std::sync::Arc;
use std::time::Duration;

use rocketmq_client_rust::ClientError;
use tokio::time::{Instant, timeout, timeout_at};

use super::{Inner, PublishError, PublishErrorKind};
use crate::client::{Outbound, Sender, TRY_MS, Unsent};
use crate::error::{is_final, is_not_stored, is_unknown_topic, refusal};
use crate::queues::{Choice, Place};
use crate::topics::{OF_EACH_BROKER, PATTERN};

/// With less time than this no try is begun.
const SHORTEST: Duration = Duration::from_millis(2);

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
        // The client counts whole ms.
        if left < SHORTEST {
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
            self.known().insert(topic, false);
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
                let was_there = self.known().contains_key(topic);
                reached(&sender, topic)
                    .await
                    .map_err(|failed| Failed { is_final: failed.is_final && !was_there, ..failed })?;
                self.known().insert(topic.to_owned(), true);
            }
        }
        Ok(sender)
    }
}

/// Whether a message to this topic has anywhere to go.
async fn reached(sender: &Sender, topic: &str) -> Result<(), Failed> {
    let Err(error) = queues(sender, topic).await? else { return Ok(()) };
    // Not there, and made by a broker as soon as something is sent to it.
    if queues(sender, PATTERN).await?.is_ok() {
        return Ok(());
    }
    // While there is no broker, no topic is known.
    if is_unknown_topic(&error) && queues(sender, OF_EACH_BROKER).await?.is_ok() {
        return Err(Failed::missing(error));
    }
    Err(Failed::before(error))
}

/// The client itself would wait for a minute: a name server that is silent must not use up the time of all tries.
async fn queues(sender: &Sender, topic: &str) -> Result<Result<usize, ClientError>, Failed> {
    timeout(Duration::from_millis(TRY_MS), sender.queues(topic)).await.map_err(|_| Failed::late(false))
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
        let text = if sent { "no answer in time" } else { "the name server has not said in time where to" };
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
