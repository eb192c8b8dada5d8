//! Deliberate flaws of a worker.
use serde::{Deserialize, Serialize};

/// A run with it has to be violated.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum InboxFlaw {
    /// The worker claims and completes the key outside of the transaction of the effect.
    ClaimOutside,
    /// A commit whose answer was lost counts as one.
    CommitIsDone,
}

impl InboxFlaw {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::ClaimOutside, Self::CommitIsDone];

    /// Returns the name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::ClaimOutside => "claim-outside",
            Self::CommitIsDone => "commit-is-done",
        }
    }

    /// The one of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|flaw| flaw.name() == name)
    }
}
