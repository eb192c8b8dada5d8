//! The invariants, and the situations that must occur so that the absence of violations is conclusive.
use std::fmt;

/// Defines an enum whose values are bits with names.
macro_rules! bits {
    ($(#[$meta:meta])+ pub enum $kind:ident { $($(#[doc = $doc:literal])+ $variant:ident = $name:literal,)+ }) => {
        $(#[$meta])+
        #[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
        #[repr(u8)]
        pub enum $kind {
            $($(#[doc = $doc])+ $variant,)+
        }

        impl $kind {
            /// All values, in the order of their bits.
            pub const ALL: [Self; [$($name),+].len()] = [$(Self::$variant),+];

            /// Returns the name in messages.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                }
            }
        }
    };
}

bits! {
    /// An invariant of the project's list, with its number.
    pub enum Invariant {
        /// The effect happens at most once.
        I0 = "I0",
        /// At most one owner is inside its lease.
        I1 = "I1",
        /// No owner releases the grant of another.
        I2 = "I2",
        /// No superseded owner completes.
        I3 = "I3",
        /// Consumed, failed and dead are undone only by the end of the retention or by an operator.
        I4 = "I4",
        /// No key is granted after it was consumed, within the retention.
        I4b = "I4b",
        /// The first stored result never changes.
        I5 = "I5",
        /// Fencing tokens rise.
        I6 = "I6",
        /// No effect with a fencing token happens after an effect with a higher one.
        I7 = "I7",
        /// An acknowledged key is known to be consumed, or dead-lettered.
        I8 = "I8",
        /// A consumed key had its effect.
        I9 = "I9",
        /// Every grant except the first has a recorded cause: an expired lease, its owner's release, the end of the
        /// retention, or an operator.
        I10 = "I10",
        /// There are no more effects than grants.
        I11 = "I11",
        /// The same key with another payload is never answered as a duplicate.
        I12 = "I12",
        /// An abandoned key can be claimed a lease and a tick later, and an undisturbed worker ends it.
        I13 = "I13",
        /// An owner inside its lease is never rejected.
        I14 = "I14",
        /// There are no more grants than the limit, not counting refunded ones. Not in the project's list.
        Limit = "limit",
        /// A run after a run with an expired lease is informed, because the effect of that run may have happened. Not in
        /// the project's list.
        Told = "told",
    }
}

impl fmt::Display for Invariant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

bits! {
    /// A situation that must occur in a run of the checker. Without it, the absence of violations proves nothing.
    pub enum Sight {
        /// S1: a worker acknowledged.
        Acked = "acked",
        /// S2: a run that took over had its effect.
        Takeover = "takeover, then effect",
        /// S3: a duplicate was answered as consumed.
        Duplicate = "duplicate told consumed",
        /// A delayed copy of a claim was granted after its run had repeated the claim, and was answered.
        LateGrant = "late copy of a claim granted",
        /// The renewal of a late owner restored its lease.
        Revived = "late owner renewed",
        /// The key ended dead.
        Buried = "buried",
        /// The key ended failed.
        Failed = "failed for good",
        /// A different payload was rejected.
        Mismatch = "changed payload refused",
    }
}

/// The results of the last step only: each state is judged when it is reached.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Step {
    violated: u32,
    seen: u8,
}

impl Step {
    /// Records a violation if `broken`.
    pub fn violates(&mut self, invariant: Invariant, broken: bool) {
        self.violated |= u32::from(broken) << invariant as u8;
    }

    /// Records a sight if it is `there`.
    pub fn shows(&mut self, sight: Sight, there: bool) {
        self.seen |= u8::from(there) << sight as u8;
    }

    /// Returns whether the last step violated the invariant with this bit.
    #[must_use]
    pub fn has_violated(self, bit: usize) -> bool {
        self.violated >> bit & 1 == 1
    }

    /// Returns whether the last step showed the sight with this bit.
    #[must_use]
    pub fn has_shown(self, bit: usize) -> bool {
        self.seen >> bit & 1 == 1
    }
}
