//! The checks of the judge, and the figures of a play.
use std::fmt;

/// A condition that a play must fulfil.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
#[non_exhaustive]
pub enum Check {
    /// An acknowledged key has run to its end at least once.
    Acknowledged,
    /// A key does not run twice at once, or twice within its retention, unless the scenario allows it.
    Once,
    /// Each message is acknowledged in the end.
    Settled,
    /// A marker is visible until the end of its retention.
    Visible,
    /// A slot has at most 7 live segments.
    Segments,
    /// A bucket has at most 512 members.
    Bucket,
    /// A marker takes at most 9.5 modelled bytes, above 100,000,000 keys within the retention.
    Bytes,
    /// Runs that repeat are no more than the lost writes whose keys were delivered later.
    Losses,
    /// The loss of a slot is reported before the first wrong grant in the slot, and at all.
    Reported,
    /// At most 0.1 % of the deliveries are postponed.
    Postponed,
    /// A hot key adds at most ten requests per process and second to its master.
    HotMaster,
    /// A process does not claim a key that it is claiming or running.
    SingleFlight,
    /// A worker starts only at the epoch of its layout.
    Started,
}

impl Check {
    /// All checks.
    pub const ALL: [Self; 13] = [
        Self::Acknowledged,
        Self::Once,
        Self::Settled,
        Self::Visible,
        Self::Segments,
        Self::Bucket,
        Self::Bytes,
        Self::Losses,
        Self::Reported,
        Self::Postponed,
        Self::HotMaster,
        Self::SingleFlight,
        Self::Started,
    ];
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Acknowledged => "acknowledged without a run",
            Self::Once => "a second run",
            Self::Settled => "not acknowledged",
            Self::Visible => "invisible marker",
            Self::Segments => "too many segments",
            Self::Bucket => "bucket too large",
            Self::Bytes => "too many bytes",
            Self::Losses => "more repeated runs than losses",
            Self::Reported => "unreported loss",
            Self::Postponed => "too many postponed deliveries",
            Self::HotMaster => "load of the hot master",
            Self::SingleFlight => "claim of a held key",
            Self::Started => "start at another epoch",
        })
    }
}

/// A violation of a check.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ScaleViolation {
    /// The check.
    pub check: Check,
    /// The message concerned, if it is one.
    pub message: Option<u32>,
    /// A description with the virtual time.
    pub text: String,
}

/// The figures of one play, or of many.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the names of the columns")]
pub struct Figures {
    pub plays: u64,
    pub virtual_us: u64,
    pub messages: u64,
    pub deliveries: u64,
    pub runs: u64,
    pub duplicates: u64,
    pub cached: u64,
    pub in_flight: u64,
    pub postponed: u64,
    pub refused: u64,
    pub takeovers: u64,
    pub lost_answers: u64,
    pub lost: u64,
    pub repeated: u64,
    pub reports: u64,
    pub refused_starts: u64,
    pub probes: u64,
    pub rolls: u64,
    pub most_segments: u64,
    pub fullest_bucket: u64,
    pub most_bytes: f64,
}

impl Figures {
    /// Adds the figures of another play. Maxima stay maxima.
    pub fn merge(&mut self, other: &Self) {
        let sums: [(&mut u64, u64); 18] = [
            (&mut self.plays, other.plays),
            (&mut self.virtual_us, other.virtual_us),
            (&mut self.messages, other.messages),
            (&mut self.deliveries, other.deliveries),
            (&mut self.runs, other.runs),
            (&mut self.duplicates, other.duplicates),
            (&mut self.cached, other.cached),
            (&mut self.in_flight, other.in_flight),
            (&mut self.postponed, other.postponed),
            (&mut self.refused, other.refused),
            (&mut self.takeovers, other.takeovers),
            (&mut self.lost_answers, other.lost_answers),
            (&mut self.lost, other.lost),
            (&mut self.repeated, other.repeated),
            (&mut self.reports, other.reports),
            (&mut self.refused_starts, other.refused_starts),
            (&mut self.probes, other.probes),
            (&mut self.rolls, other.rolls),
        ];
        for (sum, one) in sums {
            *sum += one;
        }
        self.most_segments = self.most_segments.max(other.most_segments);
        self.fullest_bucket = self.fullest_bucket.max(other.fullest_bucket);
        self.most_bytes = self.most_bytes.max(other.most_bytes);
    }
}
