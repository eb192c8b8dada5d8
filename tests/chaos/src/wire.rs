//! The protocol between the harness and a worker: one JSON object per line over stdin and stdout.
use std::path::PathBuf;

use idempotent_testkit::history::Token;
use serde::{Deserialize, Serialize};

use crate::mq::{Flaw, Kind};

/// The first line a worker reads.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Start {
    /// The number of the incarnation.
    pub(crate) worker: u32,
    pub(crate) seed: u64,
    /// The store's URL.
    pub(crate) store: String,
    /// The deliberate bug of the scripts.
    pub(crate) weakness: Option<String>,
    /// The namespace of the keys.
    pub(crate) namespace: String,
    /// Its part of the history.
    pub(crate) history: PathBuf,
    /// The resource that checks nothing: a file that all append to.
    pub(crate) effects: PathBuf,
    /// The source of the deliveries, or `None` if the harness sends them.
    pub(crate) origin: Option<Origin>,
}

/// A broker.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Origin {
    pub(crate) kind: Kind,
    pub(crate) url: String,
    /// The deliberate bug of the worker.
    pub(crate) flaw: Option<Flaw>,
}

/// A message, the same in each of its deliveries.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Message {
    pub(crate) key: u64,
    pub(crate) lease_ms: u64,
    /// A duplicate in flight waits this long for the result; 0: it comes back later.
    pub(crate) wait_ms: u64,
    /// A run that has lost its lease goes on, and tries to complete.
    pub(crate) stubborn: bool,
    /// The time from the start of the handler to its effect, and from there to its end.
    pub(crate) before_ms: u64,
    pub(crate) after_ms: u64,
    pub(crate) ends: Ends,
    /// True if the effect is on the resource that rejects old fencing tokens.
    pub(crate) fenced: bool,
}

impl Message {
    /// Returns whether the handler needs a large part of its lease, or more.
    pub(crate) fn is_long(&self) -> bool {
        self.before_ms + self.after_ms >= self.lease_ms / 2
    }
}

/// The result of the handler.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Ends {
    Well,
    /// Fails this often, and is worth another run.
    Fails(u32),
    /// Fails, and is not.
    FailsForGood,
    /// Panics this often.
    Panics(u32),
}

/// The point at which a worker kills itself: between two steps of a run, or during a store call.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Dies {
    AtClaim,
    BeforeEffect,
    AfterEffect,
    AtComplete,
    BeforeAck,
}

impl Dies {
    pub(crate) const ALL: [Self; 5] =
        [Self::AtClaim, Self::BeforeEffect, Self::AfterEffect, Self::AtComplete, Self::BeforeAck];
}

/// A message to a worker.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Order {
    Deliver {
        delivery: u64,
        message: Message,
        /// Another payload comes with the same key.
        altered: bool,
        dies: Option<Dies>,
        /// True if the run bypasses the executor.
        rogue: bool,
    },
    /// The fenced resource has answered.
    Wrote { effect: u64, accepted: bool },
    /// The dead letter is safe.
    Buried { delivery: u64 },
    /// No more dying by one's own hand.
    Peace,
}

/// A message from a worker.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum News {
    /// The worker has connected to the store.
    Ready,
    /// Asks the fenced resource.
    Write {
        effect: u64,
        key: String,
        token: Token,
        fence: u64,
    },
    Bury {
        delivery: u64,
    },
    Ack {
        delivery: u64,
    },
    Nack {
        delivery: u64,
        after_ms: u64,
    },
    /// The broker has delivered messages to the worker, and so many of them were new copies of a message that a consumer had
    /// deferred before its first attempt.
    Received {
        deferred: u64,
    },
    /// The broker has taken partitions from the worker.
    Revoked {
        partitions: u64,
    },
}

/// Encodes a message as a line.
pub(crate) fn line(said: &impl Serialize) -> String {
    // Numbers and text.
    let mut text = serde_json::to_string(said).unwrap_or_default();
    text.push('\n');
    text
}
