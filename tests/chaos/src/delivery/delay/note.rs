//! The notes of the processes.
use serde::{Deserialize, Serialize};

use crate::delivery::process::Point;

/// The receiver of a message.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Topic {
    /// Annotated handlers in a consumer.
    Work,
    /// Takers.
    Bare,
}

impl Topic {
    pub(super) const ALL: [Self; 2] = [Self::Work, Self::Bare];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Work => "work",
            Self::Bare => "bare",
        }
    }
}

/// In µs by the machine's clock.
pub(super) type Time = u64;

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Note {
    /// The producer is about to send the message.
    Intends {
        n: u64,
        topic: Topic,
        poison: bool,
        not_before: Time,
    },
    /// The message is unconfirmed, and the producer sends it again.
    Again {
        n: u64,
    },
    /// The server has said that it is kept.
    Kept {
        n: u64,
        topic: Topic,
        id: String,
        at: Time,
        new: bool,
    },
    /// The server does not take it.
    Refused {
        n: u64,
        why: String,
    },
    Cancelling {
        topic: Topic,
        id: String,
    },
    /// The server's answer to a cancellation, from the first request if `sure`.
    Cancelled {
        topic: Topic,
        id: String,
        how: Off,
        heard: Time,
        sure: bool,
    },
    /// A delivery is with its handler. `whole`: its body is what was sent.
    Began {
        topic: Topic,
        id: String,
        n: u64,
        delivered: u32,
        at: Time,
        whole: bool,
    },
    /// A run has claimed its key.
    Runs {
        name: String,
    },
    /// The delivery was rolled back.
    Back {
        topic: Topic,
        id: String,
        delivered: u32,
        asked: Time,
        delay: Time,
    },
    Dies(Point),
}

/// The result of a cancellation.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Off {
    Done,
    Delivering,
    Unknown,
}

/// Returns the id that a producer gives its message of this number, where the message has one.
pub(super) fn own_id(n: u64) -> String {
    format!("m{n}")
}

/// A message, which says what becomes of it.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(super) struct Body {
    pub(super) n: u64,
    /// Its handler always fails.
    pub(super) poison: bool,
    pad: String,
}

impl Body {
    pub(super) fn new(n: u64, poison: bool) -> Self {
        // Of any size, and known from the number.
        let length = usize::try_from(n % 97).unwrap_or_default();
        Self { n, poison, pad: "ä".repeat(length) }
    }

    pub(super) fn bytes(&self) -> Vec<u8> {
        // Numbers and text.
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Its handler fails this time.
    pub(super) fn fails(&self, delivered: u32) -> bool {
        self.poison || (self.n % 10 == 3 && delivered == 1)
    }

    /// Parses a body. Returns `None` for a body that no producer sent.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let body: Self = serde_json::from_slice(bytes).ok()?;
        let sent = Self::new(body.n, body.poison);
        (sent.bytes() == bytes).then_some(sent)
    }
}
