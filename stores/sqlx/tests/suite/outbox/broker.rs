//! A broker that keeps messages and answers as the test demands.
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;
use idempotent_core::{Alert, AlertError, AlertSender};
use idempotent_mq::{OutboundMessage, Position, Publish, PublishError, PublishErrorKind, Published};
use tokio::sync::{Semaphore, watch};

/// The answer for a message.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Says {
    Lies(u64),
    Somewhere,
    Fails(PublishErrorKind),
    /// No answer for any message, until the publisher is dropped.
    Nothing,
}

#[derive(Debug)]
pub(crate) struct Broker {
    /// Ids in the order they came.
    taken: Mutex<Vec<OutboundMessage>>,
    says: Mutex<HashMap<String, Says>>,
    otherwise: Mutex<Says>,
    /// One permit for each call that may be answered.
    pub gate: Semaphore,
    delays: AtomicBool,
    calls: watch::Sender<usize>,
}

impl Broker {
    pub(crate) fn new() -> Self {
        Self {
            taken: Mutex::default(),
            says: Mutex::default(),
            otherwise: Mutex::new(Says::Somewhere),
            gate: Semaphore::new(1_000_000),
            delays: AtomicBool::new(false),
            calls: watch::Sender::new(0),
        }
    }

    /// Makes the broker keep messages until their delivery time.
    pub(crate) fn delays(&self) {
        self.delays.store(true, Ordering::SeqCst);
    }

    pub(crate) fn say(&self, says: Says) {
        *self.otherwise.lock().unwrap() = says;
    }

    pub(crate) fn say_of(&self, id: &str, says: Says) {
        self.says.lock().unwrap().insert(id.to_owned(), says);
    }

    /// The ids of what it was sent, in order.
    pub(crate) fn ids(&self) -> Vec<String> {
        self.messages().into_iter().map(|message| message.id).collect()
    }

    pub(crate) fn messages(&self) -> Vec<OutboundMessage> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the number of calls.
    pub(crate) fn calls(&self) -> usize {
        *self.calls.borrow()
    }

    /// Ends once it was called so often.
    pub(crate) async fn called(&self, times: usize) {
        self.calls.subscribe().wait_for(|calls| *calls >= times).await.unwrap();
    }
}

#[async_trait]
impl Publish for Broker {
    async fn publish(&self, messages: &[OutboundMessage]) -> Vec<Result<Published, PublishError>> {
        self.calls.send_modify(|calls| *calls += 1);
        self.gate.acquire().await.unwrap().forget();
        let mut held_back: Vec<String> = Vec::new();
        let mut answers = Vec::new();
        for message in messages {
            let otherwise = *self.otherwise.lock().unwrap();
            let says = self.says.lock().unwrap().get(&message.id).copied().unwrap_or(otherwise);
            if message.aggregate.as_ref().is_some_and(|aggregate| held_back.contains(aggregate)) {
                answers.push(Err(PublishError::new(PublishErrorKind::Unsent, "behind one that was not accepted")));
                continue;
            }
            let sent = !matches!(says, Says::Fails(PublishErrorKind::Unsent));
            if sent {
                self.taken.lock().unwrap().push(message.clone());
            }
            answers.push(match says {
                Says::Lies(place) => Ok(Published::at(Position::of(&*message.topic).partition(0).offset(place))),
                Says::Somewhere => Ok(Published::somewhere()),
                Says::Fails(kind) => {
                    held_back.extend(message.aggregate.clone());
                    Err(PublishError::new(kind, "as told"))
                }
                Says::Nothing => std::future::pending().await,
            });
        }
        answers
    }

    fn delays(&self) -> bool {
        self.delays.load(Ordering::SeqCst)
    }
}

/// A sender that keeps the alerts.
#[derive(Debug, Default)]
pub(crate) struct Bell(Mutex<Vec<Alert>>);

impl Bell {
    pub(crate) fn alerts(&self) -> Vec<Alert> {
        self.0.lock().unwrap().clone()
    }
}

#[async_trait]
impl AlertSender for Bell {
    async fn send(&self, alert: &Alert) -> Result<(), AlertError> {
        self.0.lock().unwrap().push(alert.clone());
        Ok(())
    }
}
