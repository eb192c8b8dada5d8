//! The lines of a history.
use std::fmt;

use serde::{Deserialize, Serialize};

/// An owner token: 32 hex digits.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Token(pub u128);

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl Serialize for Token {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Token {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// A number or a name, as in the line.
#[derive(Clone, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(untagged)]
pub enum Label {
    /// A number.
    Number(u64),
    /// A name.
    Name(String),
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Name(name) => name.fmt(f),
        }
    }
}

impl From<u32> for Label {
    fn from(number: u32) -> Self {
        Self::Number(number.into())
    }
}

macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident $name:literal,)+) => {
        /// The event of a line; the table in [`history`](crate::history) describes all events.
        #[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
        #[non_exhaustive]
        pub enum Kind {
            $($(#[$doc])* #[serde(rename = $name)] $kind,)+
        }

        impl Kind {
            /// All events.
            pub const ALL: &'static [Self] = &[$(Self::$kind,)+];

            /// Returns the event as it is written.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$kind => $name,)+
                }
            }
        }
    };
}

kinds! {
    /// A message was sent.
    Produced "produced",
    /// Granted.
    ClaimWon "claim_won",
    /// Another owner has the key.
    ClaimInflight "claim_inflight",
    /// The key was consumed before.
    ClaimConsumed "claim_consumed",
    /// No answer.
    ClaimUnknown "claim_unknown",
    /// The key is free, but delayed.
    ClaimDelayed "claim_delayed",
    /// The key has failed before, or the claim was refused.
    ClaimFailed "claim_failed",
    /// The handler's effect.
    Effect "effect",
    /// A fenced resource rejected the effect.
    EffectRefused "effect_refused",
    /// The lease was extended.
    RenewOk "renew_ok",
    /// Not the owner.
    RenewLost "renew_lost",
    /// No answer.
    RenewUnknown "renew_unknown",
    /// The key is consumed.
    CompleteOk "complete_ok",
    /// Not the owner.
    CompleteLost "complete_lost",
    /// No answer.
    CompleteUnknown "complete_unknown",
    /// The key was released.
    Released "released",
    /// No answer to a release of any kind.
    ReleaseUnknown "release_unknown",
    /// The run failed permanently.
    Failed "failed",
    /// The key was used with another payload.
    Mismatch "mismatch",
    /// The key was buried, or is dead.
    Dead "dead",
    /// Confirmed by the broker.
    DeadLettered "dead_lettered",
    /// Acknowledged.
    Ack "ack",
    /// The message will be redelivered.
    Nack "nack",
    /// The worker was killed.
    Crash "crash",
    /// The worker was stopped.
    Paused "paused",
    /// The worker continues.
    Resumed "resumed",
    /// An operator made the key claimable.
    Forget "forget",
    /// The store lost the record.
    RecordLost "record_lost",
    /// The effects that the resource holds at the end.
    EffectTruth "effect_truth",
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Kind {
    /// Returns whether the event is about a whole worker and not about a key.
    #[must_use]
    pub fn is_of_a_worker(self) -> bool {
        matches!(self, Self::Crash | Self::Paused | Self::Resumed)
    }

    /// Returns whether it is unknown if and when the call was applied.
    #[must_use]
    pub fn is_unknown(self) -> bool {
        matches!(self, Self::ClaimUnknown | Self::RenewUnknown | Self::CompleteUnknown | Self::ReleaseUnknown)
    }
}

/// One call of the store, or one other event. The table of [`history`](crate::history) describes the fields.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[allow(missing_docs, reason = "the table of the module says it once")]
pub struct Line {
    pub t: u64,
    pub t0: u64,
    pub worker: Label,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    pub event: Kind,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<Token>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fence: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scene: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retain_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fp: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<Label>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens: Option<Vec<Token>>,
}

impl Line {
    /// Creates an event of a worker at `t`, without the optional fields.
    #[must_use]
    pub fn new(t: u64, worker: impl Into<Label>, event: Kind) -> Self {
        Self {
            t,
            t0: t,
            worker: worker.into(),
            key: None,
            event,
            token: None,
            fence: None,
            tenant: None,
            scene: None,
            lease_ms: None,
            retain_ms: None,
            result: None,
            fp: None,
            step: None,
            tokens: None,
        }
    }

    /// Returns the line as JSON, without a line break.
    #[must_use]
    pub fn to_json(&self) -> String {
        // Numbers, text and lists of text can always be encoded.
        serde_json::to_string(self).unwrap_or_default()
    }
}
