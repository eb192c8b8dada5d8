//! Workers, and a publisher, that are wrong on purpose.
use serde::{Deserialize, Serialize};

macro_rules! flaws {
    ($($(#[$doc:meta])* $flaw:ident $name:literal,)+) => {
        /// A deliberate bug, with which a run must violate an invariant.
        #[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
        #[non_exhaustive]
        pub enum Flaw {
            $($(#[$doc])* #[serde(rename = $name)] $flaw,)+
        }

        impl Flaw {
            /// All of them.
            pub const ALL: [Self; [$($name),+].len()] = [$(Self::$flaw),+];

            /// Returns the name on the command line.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$flaw => $name,)+
                }
            }
        }
    };
}

flaws! {
    /// A delivery is acknowledged before it is run.
    AckBeforeRun "ack-before-run",
    /// A duplicate of what is in flight is acknowledged.
    AckInFlight "ack-in-flight",
    /// A message goes back to the broker, and its key is not given back.
    RequeueUnreleased "requeue-unreleased",
    /// A dead letter is its body alone.
    BareDeadLetter "bare-dead-letter",
    /// The publisher takes whatever it hears for a confirm.
    UnconfirmedPublisher "unconfirmed-publisher",
}

impl Flaw {
    /// The one of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|flaw| flaw.name() == name)
    }
}
