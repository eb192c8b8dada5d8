//! Deliberate bugs of the model. Only tests switch them on, to show that each check can fail.
use super::scenario::{Form, Scenario};
use super::verdict::Check;

/// A deliberate bug of the modelled store, fleet or operation.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
#[allow(missing_docs, reason = "`Bug::CASES` describes each one")]
pub enum Bug {
    InFlightAcknowledged,
    ShortMember,
    PostponedDropped,
    RetentionFromClaim,
    NewestSegmentOnly,
    NeverRollsEarly,
    NeverDrops,
    PowerOfTwoBuckets,
    NoGuard,
    FutureIgnored,
    ClientClock,
    KeepsNewestSegments,
    ReplicaFarBack,
    LossNotCompared,
    LossNeedsKnownHeader,
    AllMastersCleared,
    UndeclaredKeys,
    MovedKeyIsNew,
    RefusalOpensBreaker,
    NoSingleFlight,
    NoClaimRate,
    NoCache,
    NoEpochCheck,
    NoPreviousLookup,
}

/// A bug, with a scenario in which it shows and the check that detects it there.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct BugCase {
    /// The bug.
    pub bug: Bug,
    /// The scenario.
    pub scenario: Scenario,
    /// The stored form.
    pub form: Form,
    /// The check.
    pub check: Check,
    /// A description of the bug.
    pub text: &'static str,
}

const fn case(bug: Bug, scenario: Scenario, form: Form, check: Check, text: &'static str) -> BugCase {
    BugCase { bug, scenario, form, check, text }
}

impl Bug {
    /// All bugs, each with a check that detects it. Some bugs have two forms, or break two checks.
    pub const CASES: [BugCase; 34] = {
        use Bug as B;
        use Check as C;
        use Form::{Packed, Record};
        use Scenario as S;
        [
            case(B::InFlightAcknowledged, S::Constant, Record, C::Acknowledged, "a key in flight counts as consumed"),
            case(B::ShortMember, S::Constant, Packed, C::Acknowledged, "a member has 16 bits of the hash"),
            case(B::PostponedDropped, S::Constant, Record, C::Settled, "a postponed delivery is dropped"),
            case(B::RetentionFromClaim, S::Constant, Record, C::Visible, "the retention begins with the claim"),
            case(B::NewestSegmentOnly, S::Constant, Packed, C::Once, "a claim looks into the newest segment only"),
            case(B::NeverRollsEarly, S::Step, Packed, C::Bucket, "a full bucket does not close its segment"),
            case(B::NeverDrops, S::Wave, Packed, C::Segments, "no segment is ever dropped"),
            case(B::PowerOfTwoBuckets, S::Burst, Packed, C::Bytes, "a segment has a power of two of buckets"),
            case(B::NoGuard, S::ClockAhead, Packed, C::Visible, "segments are dropped without a guard time"),
            case(B::FutureIgnored, S::ClockBack, Packed, C::Visible, "a segment from the future is ignored"),
            case(B::FutureIgnored, S::ClockBack, Record, C::Visible, "a record from the future is ignored"),
            case(B::ClientClock, S::ConsumerSkew, Packed, C::Visible, "a script takes the time from its client"),
            case(B::ClientClock, S::ConsumerSkew, Record, C::Visible, "a script takes the time from its client"),
            case(B::KeepsNewestSegments, S::RetentionChange, Packed, C::Visible, "a roll keeps a number of segments"),
            case(B::RetentionFromClaim, S::RetentionChange, Record, C::Visible, "the retention begins with the claim"),
            case(B::ReplicaFarBack, S::Failover, Packed, C::Losses, "a replica that is seconds late is promoted"),
            case(B::ReplicaFarBack, S::Failover, Record, C::Losses, "a replica that is seconds late is promoted"),
            case(B::InFlightAcknowledged, S::Failover, Packed, C::Acknowledged, "a key in flight counts as consumed"),
            case(B::LossNotCompared, S::MasterLost, Packed, C::Reported, "headers are replaced without a comparison"),
            case(B::LossNeedsKnownHeader, S::MasterLost, Packed, C::Reported, "a new process takes no header as new"),
            case(B::AllMastersCleared, S::MasterLost, Record, C::Once, "the other masters are cleared, too"),
            case(B::AllMastersCleared, S::MasterLost, Packed, C::Once, "the other masters are cleared, too"),
            case(B::UndeclaredKeys, S::Resharding, Packed, C::Once, "a script does not declare the buckets as keys"),
            case(B::MovedKeyIsNew, S::Resharding, Record, C::Once, "a source grants keys that it has moved"),
            case(B::RefusalOpensBreaker, S::Resharding, Packed, C::Postponed, "a refusal counts as a failed store"),
            case(B::NoSingleFlight, S::HotKey, Record, C::SingleFlight, "a process claims a key that it holds"),
            case(B::NoClaimRate, S::HotKey, Packed, C::HotMaster, "a key in flight is claimed without a pause"),
            case(B::NoCache, S::HotKey, Record, C::HotMaster, "no process remembers consumed keys"),
            case(B::NoEpochCheck, S::RollingUpgrade, Record, C::Started, "a worker starts at any epoch"),
            case(B::NoEpochCheck, S::RollingUpgrade, Packed, C::Once, "a worker starts at any epoch"),
            case(B::NoPreviousLookup, S::RollingUpgrade, Record, C::Once, "the previous namespace is not searched"),
            case(B::NoPreviousLookup, S::RollingUpgrade, Packed, C::Once, "the previous namespace is not searched"),
            case(B::NewestSegmentOnly, S::Burst, Packed, C::Once, "a claim looks into the newest segment only"),
            case(B::NeverDrops, S::Small, Packed, C::Segments, "no segment is ever dropped"),
        ]
    };
}
