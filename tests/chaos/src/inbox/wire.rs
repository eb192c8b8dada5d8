//! The protocol between the harness and a worker: one JSON object per line.
use serde::{Deserialize, Serialize};

use super::{InboxDatabase, InboxFlaw};

/// The first line a worker reads.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct Start {
    pub(super) worker: u32,
    pub(super) seed: u64,
    pub(super) store: String,
    pub(super) database: InboxDatabase,
    pub(super) flaw: Option<InboxFlaw>,
}

/// A point at which a worker kills itself, in the order of the protocol.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Point {
    BeforeClaim,
    AtClaim,
    BeforeHandler,
    BeforeEffect,
    InEffect,
    AfterEffect,
    AtComplete,
    BeforeAck,
    AckLost,
    AtRelease,
    /// Its value is larger than what is kept.
    ValueNotKept,
    AtCommit,
}

impl Point {
    pub(super) const ALL: [Self; 12] = [
        Self::BeforeClaim,
        Self::AtClaim,
        Self::BeforeHandler,
        Self::BeforeEffect,
        Self::InEffect,
        Self::AfterEffect,
        Self::AtComplete,
        Self::BeforeAck,
        Self::AckLost,
        Self::AtRelease,
        Self::ValueNotKept,
        Self::AtCommit,
    ];
}

impl Point {
    /// In the closing line.
    pub(super) fn told(self) -> &'static str {
        match self {
            Self::BeforeClaim => "deaths before the claim",
            Self::AtClaim => "deaths at the claim",
            Self::BeforeHandler => "deaths before the handler",
            Self::BeforeEffect => "deaths before the effect",
            Self::InEffect => "deaths in the effect",
            Self::AfterEffect => "deaths after the effect",
            Self::AtComplete => "deaths at the completion",
            Self::BeforeAck => "deaths before the ack",
            Self::AckLost => "acks lost",
            Self::AtRelease => "deaths at the release",
            Self::ValueNotKept => "deaths behind a value not kept",
            Self::AtCommit => "deaths at the commit",
        }
    }
}

/// A message to a worker.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct Deliver {
    pub(super) delivery: u64,
    pub(super) key: u64,
    /// True if the handler fails after its effect.
    pub(super) fails: bool,
    /// True if a statement of the handler ends its transaction, before any effect.
    pub(super) ends: bool,
    pub(super) dies: Option<Point>,
}

/// A message from a worker.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum News {
    Ready,
    /// The worker is about to kill itself at this point.
    Dies(Point),
    /// A run took over from one that died.
    TakenOver,
    /// A handler has ended its transaction.
    Ended,
    Ack {
        delivery: u64,
    },
    Nack {
        delivery: u64,
        after_ms: u64,
    },
}
