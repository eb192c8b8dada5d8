//! What must never happen, and what must be seen to happen so that the former means something.
use std::fmt;

/// What the project's list of invariants asks for, by its numbers there.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
#[repr(u8)]
pub enum Invariant {
    /// The effect happens at most once.
    I0,
    /// At most one holder inside its lease.
    I1,
    /// Nobody releases another's grant.
    I2,
    /// Nobody completes who was superseded.
    I3,
    /// Consumed, failed and dead are never undone but by retention or by an operator.
    I4,
    /// No grant after consumed, within the retention.
    I4b,
    /// The first stored result never changes.
    I5,
    /// Fencing numbers rise.
    I6,
    /// No effect under a number after an effect under a higher one.
    I7,
    /// An ack means that the key is known to be consumed, or dead-lettered.
    I8,
    /// Consumed means that the effect happened.
    I9,
    /// Every grant but the first has a recorded cause: a lease that ran out, its owner's release, the end of the
    /// retention, an operator.
    I10,
    /// No more effects than grants.
    I11,
    /// The same key with another payload is never answered as a duplicate.
    I12,
    /// A key left alone can be claimed a lease and a tick later, and a worker left in peace ends it.
    I13,
    /// An owner inside its lease is never refused.
    I14,
    /// No more grants than the limit, those given back taken off. Without a number in the list.
    Limit,
    /// Who runs after a run whose lease ran out is told so: that one's effect may have happened. Without a number in
    /// the list.
    Told,
}

impl Invariant {
    /// All of them, in the order of their bits.
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

    /// Its number in the list.
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

/// What a run of the checker must come across, or its silence would mean nothing.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
#[repr(u8)]
pub enum Sight {
    /// S1: a worker acked.
    Acked,
    /// S2: a run that took over had its effect.
    Takeover,
    /// S3: a duplicate was told that the key is consumed.
    Duplicate,
    /// A copy of a claim that was held up was granted after its run had asked again, and was answered.
    LateGrant,
    /// A late owner's renewal brought its lease back.
    Revived,
    /// The key ended dead.
    Buried,
    /// The key ended failed.
    Failed,
    /// A changed payload was refused.
    Mismatch,
}

impl Sight {
    /// All of them, in the order of their bits.
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

    /// For people.
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

/// What the last step did. Not remembered any longer: each state is judged when it is reached.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Step {
    violated: u32,
    seen: u8,
}

impl Step {
    /// Notes that an invariant was broken, if `broken`.
    pub fn violates(&mut self, invariant: Invariant, broken: bool) {
        self.violated |= u32::from(broken) << invariant as u8;
    }

    /// Notes a sight, if it was `there`.
    pub fn shows(&mut self, sight: Sight, there: bool) {
        self.seen |= u8::from(there) << sight as u8;
    }

    /// Whether the last step broke the invariant with this bit.
    #[must_use]
    pub fn has_violated(self, bit: usize) -> bool {
        self.violated >> bit & 1 == 1
    }

    /// Whether the last step showed the sight with this bit.
    #[must_use]
    pub fn has_shown(self, bit: usize) -> bool {
        self.seen >> bit & 1 == 1
    }
}
