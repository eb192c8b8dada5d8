//! A session on the runtime of its client.
use std::time::Duration;

use idempotent_mq::SourceError;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use super::LetterSettings;
use super::broker_log::BrokerLog;
use super::log::StoredLetter;
use super::session::{Handling, LetterSession};
use crate::client::{answer_of, spawn_client};
use crate::error::failure;

/// A session on its own thread, which runs one step after the other. After the drop of this value, the session ends with its
/// current step: the caller's cancellation interrupts no step.
pub(crate) struct OpenSession {
    pub(crate) steps: mpsc::UnboundedSender<SessionStep>,
    ended: oneshot::Receiver<()>,
}

/// A step of a session, and the receiver of its result.
pub(crate) enum SessionStep {
    Count(Reply<u64>),
    Next(Reply<Option<StoredLetter>>),
    Handle(Handling, Reply<bool>),
}

/// Time limit for the end of a session, whose client unregisters from all brokers.
const CLOSING_LIMIT: Duration = Duration::from_secs(10);

pub(crate) type Reply<T> = oneshot::Sender<Result<T, SourceError>>;

impl OpenSession {
    /// Starts the client, in one attempt.
    pub(crate) async fn open(settings: &LetterSettings) -> Result<Self, SourceError> {
        let (ready, opened) = oneshot::channel();
        let ((steps, orders), (end, ended)) = (mpsc::unbounded_channel(), oneshot::channel());
        let LetterSettings { client, dead_topic, operator_group, .. } = settings.clone();
        spawn_client(0, move |runtime| async move {
            match BrokerLog::start(&runtime, &client, &dead_topic, &operator_group).await {
                Ok(log) => {
                    drop(ready.send(Ok(())));
                    let mut session = LetterSession::new(log, dead_topic);
                    session.run(orders).await;
                    session.into_log().shut_down().await;
                }
                Err(error) => {
                    let text = "connecting: the client for the dead letters could not be started";
                    drop(ready.send(Err(failure(text, error))));
                }
            }
            drop(end);
        });
        answer_of("connecting", opened).await?;
        Ok(Self { steps, ended })
    }

    /// Ends the session, and waits for the end of its client, or leaves the end to the background.
    pub(crate) async fn close(self) {
        drop(self.steps);
        // The channel carries no value and ends with the drop of its sender.
        let _: Result<Result<(), _>, _> = timeout(CLOSING_LIMIT, self.ended).await;
    }
}

impl LetterSession<BrokerLog> {
    /// Runs the steps in turn, until there are no more callers.
    async fn run(&mut self, mut steps: mpsc::UnboundedReceiver<SessionStep>) {
        // A caller that was cancelled needs no result.
        while let Some(step) = steps.recv().await {
            match step {
                SessionStep::Count(reply) => drop(reply.send(self.count().await)),
                SessionStep::Next(reply) => drop(reply.send(self.next().await)),
                SessionStep::Handle(handling, reply) => drop(reply.send(self.handle(&handling).await)),
            }
        }
    }
}
