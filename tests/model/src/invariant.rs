//! The invariants, and the situations that must occur so that the absence of violations is conclusive.
use std::fmt;

/// An invariant of the project's list, with its number.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
#[repr(u8)]
pub enum Invariant {
    /// The effect happens at most once.
    I0,
    /// At most one owner is inside its lease.
    I1,
    /// No owner releases the grant of another.
    I2,
    /// No superseded owner completes.
    I3,
    /// Consumed, failed and dead are undone only by the end of the retention or by an operator.
    I4,
    /// No key is granted after it was consumed, within the retention.
    I4b,
    /// The first stored result never changes.
    I5,
    /// Fencing tokens rise.
    I6,
    /// No effect with a fencing token happens after an effect with a higher one.
    I7,
    /// An acknowledged key is known to be consumed, or dead-lettered.
    I8,
    /// A consumed key had its effect.
    I9,
    /// Every grant except the first has a recorded cause: an expired lease, its owner's release, the end of the
    /// retention, or an operator.
    I10,
    /// There are no more effects than grants.
    I11,
    /// The same key with another payload is never answered as a duplicate.
    I12,
    /// An abandoned key can be claimed a lease and a tick later, and an undisturbed worker ends it.
    I13,
    /// An owner inside its lease is never rejected.
    I14,
    /// There are no more grants than the limit, not counting refunded ones. Not in the project's list.
    Limit,
    /// A run after a run with an expired lease is informed, because the effect of that run may have happened. Not in
    /// the project's list.
    Told,
}

impl Invariant {
    /// All invariants, in the order of their bits.
    pub const ALL: [Self; 18] = [
        Self::I0,
        Self::I1,
        Self::I2,
        Self::I3,
        Self::I4,
        Self::I4b,
        Self::I5,
        Self::I6,
        Self::I7,
        Self::I8,
        Self::I9,
        Self::I10,
        Self::I11,
        Self::I12,
        Self::I13,
        Self::I14,
        Self::Limit,
        Self::Told,
    ];

    /// Returns the number in the list.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::I0 => "I0",
            Self::I1 => "I1",
            Self::I2 => "I2",
            Self::I3 => "I3",
            Self::I4 => "I4",
            Self::I4b => "I4b",
            Self::I5 => "I5",
            Self::I6 => "I6",
            Self::I7 => "I7",
            Self::I8 => "I8",
            Self::I9 => "I9",
            Self::I10 => "I10",
            Self::I11 => "I11",
            Self::I12 => "I12",
            Self::I13 => "I13",
            Self::I14 => "I14",
            Self::Limit => "limit",
            Self::Told => "told",
        }
    }
}

impl fmt::Display for Invariant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A situation that must occur in a run of the checker. Without it, the absence of violations proves nothing.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
#[repr(u8)]
pub enum Sight {
    /// S1: a worker acknowledged.
    Acked,
    /// S2: a run that took over had its effect.
    Takeover,
    /// S3: a duplicate was answered as consumed.
    Duplicate,
    /// A delayed copy of a claim was granted after its run had repeated the claim, and was answered.
    LateGrant,
    /// The renewal of a late owner restored its lease.
    Revived,
    /// The key ended dead.
    Buried,
    /// The key ended failed.
    Failed,
    /// A different payload was rejected.
    Mismatch,
}

impl Sight {
    /// All sights, in the order of their bits.
    pub const ALL: [Self; 8] = [
        Self::Acked,
        Self::Takeover,
        Self::Duplicate,
        Self::LateGrant,
        Self::Revived,
        Self::Buried,
        Self::Failed,
        Self::Mismatch,
    ];

    /// Returns the name for messages.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Acked => "acked",
            Self::Takeover => "takeover, then effect",
            Self::Duplicate => "duplicate told consumed",
            Self::LateGrant => "late copy of a claim granted",
            Self::Revived => "late owner renewed",
            Self::Buried => "buried",
            Self::Failed => "failed for good",
            Self::Mismatch => "changed payload refused",
        }
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
