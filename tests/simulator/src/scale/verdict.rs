//! The checks of the judge, and the figures of a play.
use std::fmt;

macro_rules! checks {
    ($($(#[doc = $doc:literal])+ $check:ident = $text:literal,)+) => {
        /// A condition that a play must fulfil.
        #[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
        #[non_exhaustive]
        pub enum Check {
            $($(#[doc = $doc])+ $check,)+
        }

        impl Check {
            /// All checks.
            pub const ALL: [Self; [$($text),+].len()] = [$(Self::$check),+];
        }

        impl fmt::Display for Check {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self {
                    $(Self::$check => $text,)+
                })
            }
        }
    };
}

checks! {
    /// An acknowledged key has run to its end at least once.
    Acknowledged = "acknowledged without a run",
    /// A key does not run twice at once, or twice within its retention, unless the scenario allows it.
    Once = "a second run",
    /// Each message is acknowledged in the end.
    Settled = "not acknowledged",
    /// A marker is visible until the end of its retention.
    Visible = "invisible marker",
    /// A slot has at most 7 live segments.
    Segments = "too many segments",
    /// A bucket has at most 512 members.
    Bucket = "bucket too large",
    /// A marker takes at most 9.5 modelled bytes, above 100,000,000 keys within the retention.
    Bytes = "too many bytes",
    /// Runs that repeat are no more than the lost writes whose keys were delivered later.
    Losses = "more repeated runs than losses",
    /// The loss of a slot is reported before the first wrong grant in the slot, and at all.
    Reported = "unreported loss",
    /// At most 0.1 % of the deliveries are postponed.
    Postponed = "too many postponed deliveries",
    /// A hot key adds at most ten requests per process and second to its master.
    HotMaster = "load of the hot master",
    /// A process does not claim a key that it is claiming or running.
    SingleFlight = "claim of a held key",
    /// A worker starts only at the epoch of its layout.
    Started = "start at another epoch",
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
