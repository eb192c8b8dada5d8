//! What a worker may do wrong on purpose.
use serde::{Deserialize, Serialize};

/// A run with it has to be violated.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum InboxFlaw {
    /// The key is claimed and completed beside the transaction of the effect, not in it.
    ClaimOutside,
    /// A commit whose answer was lost counts as one.
    CommitIsDone,
}

impl InboxFlaw {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::ClaimOutside, Self::CommitIsDone];

    /// As it is called for.
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
