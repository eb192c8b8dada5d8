//! Points of users, numbered: what messages that come after others, and numbers of streams, have in common.
use std::sync::{Arc, Mutex};

use idempotent_core::{Clock, OnBrokenOrder, Policy, Rejection};
use idempotent_mq::{Message, MessageHandler, Messages};
use idempotent_testkit::VirtualClock;
use serde::Deserialize;

use crate::world::{Process, World, ms, secs};

#[derive(Deserialize)]
pub(crate) struct Points {
    pub(crate) user: String,
    pub(crate) number: u64,
    #[serde(default)]
    bad: bool,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum Failed {
    #[error(transparent)]
    Idempotent(#[from] Rejection),
    #[error("no such user")]
    NoUser,
}

/// The runs in order of their starts, and the users of running ones.
#[derive(Clone)]
pub(crate) struct Log {
    ran: Arc<Mutex<Vec<String>>>,
    running: Arc<Mutex<Vec<String>>>,
    clock: VirtualClock,
}

impl Log {
    pub(crate) fn of(world: &World) -> Self {
        Self { ran: Arc::default(), running: Arc::default(), clock: world.clock.clone() }
    }

    /// In the order in which they began.
    pub(crate) fn ran(&self) -> String {
        self.ran.lock().unwrap().join(" ")
    }

    /// Handles a message for 100 ms. Two runs of one user never overlap.
    pub(crate) async fn credit(&self, points: &Points) -> Result<(), Failed> {
        if points.bad {
            return Err(Failed::NoUser);
        }
        assert!(!self.running.lock().unwrap().contains(&points.user), "two of {} side by side", points.user);
        self.running.lock().unwrap().push(points.user.clone());
        self.ran.lock().unwrap().push(format!("{}{}", points.user, points.number));
        self.clock.sleep_until(self.clock.now() + ms(100)).await;
        self.running.lock().unwrap().retain(|user| *user != points.user);
        Ok(())
    }
}

/// Returns a message handler that calls this function.
pub(crate) fn handling<F>(log: &Log, credit: fn(Points, Log) -> F) -> MessageHandler
where
    F: Future<Output = Result<(), Failed>> + Send + 'static,
{
    let log = log.clone();
    Messages::json().annotated(move |message: Message<Points>| credit(message.body, log.clone()))
}

pub(crate) fn send(world: &World, user: &str, numbers: &[u64]) {
    for number in numbers {
        let body = format!(r#"{{"user": "{user}", "number": {number}}}"#);
        world.broker.send(&format!("{user}{number}"), &body);
    }
}

/// One that dies at its first run.
pub(crate) fn send_bad(world: &World, user: &str, number: u64) {
    let body = format!(r#"{{"user": "{user}", "number": {number}, "bad": true}}"#);
    world.broker.send(&format!("{user}{number}"), &body);
}

/// Three consumers of one message each at a time.
pub(crate) async fn three(world: &World, policy: Policy, handling: impl Fn() -> MessageHandler) -> Vec<Process> {
    let mut processes = Vec::new();
    for _ in 0..3 {
        processes.push(world.consume_by(policy, handling(), |builder| builder.concurrency(1)).await);
    }
    processes
}

pub(crate) fn skip() -> Policy {
    Policy::new().on_broken_order(OnBrokenOrder::Skip(secs(60)))
}

pub(crate) fn count(processes: &[Process], outcome: &str) -> u64 {
    processes.iter().map(|process| process.executor.counts().of(outcome)).sum()
}
