//! What can be wrong with a store.

macro_rules! bugs {
    ($($(#[$doc:meta])+ $bug:ident,)+) => {
        /// One thing that is wrong with a [`Mutant`](super::Mutant).
        ///
        /// Each is a mistake that a store was once made with, or could be.
        #[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
        #[non_exhaustive]
        pub enum Bug {
            $($(#[$doc])+ $bug,)+
        }

        impl Bug {
            /// Every bug there is.
            pub const ALL: &'static [Self] = &[$(Self::$bug,)+];
        }
    };
}

bugs! {
    // Atomicity.
    /// Non-atomic claim: reads, lets others in, writes.
    NonAtomicClaim,
    /// A takeover reads that the lease is over, lets others in, and writes without comparing.
    TakeoverWithoutCompare,
    /// A late renewal, completion or release reads that it may, lets others in, and writes without comparing.
    SettlingWithoutCompare,
    /// A claim counts the attempt, lets others in, and writes the owner then: dropped in between, it is counted.
    ClaimInTwoWrites,
    /// A completion removes the record, lets others in, and writes it anew.
    CompletionByDeleteAndInsert,
    /// A claim is atomic on its own connection only: a lock of the process, not of the records.
    AtomicPerConnection,

    // Guards.
    /// Unconditional delete: a release that deletes does so for whoever asks, whatever is there.
    UnconditionalDelete,
    /// Unconditional flip: a completion writes "consumed" for whoever asks, whatever is there.
    UnconditionalFlip,
    /// Takes the token for the grant: the number is not looked at.
    TokenWithoutNumber,
    /// Releases by token, without a look at the state: a consumed record is undone.
    TokenWithoutState,
    /// Renews for whoever asks.
    RenewWithoutOwner,
    /// An owner whose lease is over may not settle, though nobody took over.
    LateOwnerRefused,
    /// The last result stands, not the first.
    LastResultStands,
    /// A release that comes again is done again.
    RepeatedReleaseIsDone,
    /// Put after vanish: a renewal or completion writes a record where there is none any more.
    PutAfterVanish,

    // Claims.
    /// The same owner asking again, because the answer was lost, is counted again.
    RepetitionCounts,
    /// The same owner asking again, because the answer was lost, is told that somebody has it.
    RepetitionIsInFlight,
    /// The same owner asking again when its lease is over takes over from itself.
    RepetitionTakesOver,
    /// A lease may be taken over a ms early.
    EarlyTakeover,
    /// A lease that is over is not looked at: its key stays in flight.
    ExpiryIgnored,
    /// Takes over though it is asked to park.
    ParkIgnored,
    /// The delay of a vacant record is not looked at.
    DelayIgnored,
    /// The error of the last run is not kept.
    ErrorDropped,
    /// A dead key is granted as long as its attempts are below the limit.
    DeadIsGranted,
    /// A failed key is granted anew.
    FailedIsGranted,

    // Attempts.
    /// Runs are counted when they are put down, not when they are granted: a crash counts nothing.
    AttemptCountedAtRelease,
    /// A refunded run counts all the same.
    RefundCounts,
    /// A refund leaves a vacant record though there is nothing to remember.
    RefundLeavesTrace,
    /// A refund forgets what the run had taken over.
    RefundHidesTakeover,
    /// No limit is taken for a limit of ten.
    NoLimitIsTen,
    /// Attempts are compared before the lease: a live holder of the last attempt is buried.
    BuriesTheLiving,

    // Payloads.
    /// The fingerprint is compared before the state.
    FingerprintFirst,
    /// The fingerprint is not compared at all.
    FingerprintIgnored,
    /// A payload without a fingerprint is taken for another payload.
    NoFingerprintDiffers,
    /// The fingerprint of the first claim stays.
    FingerprintStays,

    // Numbers.
    /// The fencing number begins anew with each record.
    FencingStartsAnew,
    /// A takeover keeps the fencing number.
    TakeoverKeepsNumber,
    /// A deletion forgets the number, though the clock has not passed it.
    DeletionForgetsNumber,
    /// A purge forgets the number, though the clock has not passed it.
    PurgeForgetsNumber,
    /// Forgetting begins the number anew.
    ForgettingForgetsNumber,
    /// The fencing number is in ns: too high for a double.
    FencingInNanos,

    // Time.
    /// Times are kept in whole seconds, the rest is cut off.
    SecondsRounded,
    /// A lease ends a ms late.
    LateEnd,
    /// Peek shows what is past its time.
    PeekShowsExpired,
    /// A renewal may shorten.
    RenewalShortens,
    /// A renewal is answered and not done.
    RenewalDoesNothing,
    /// A renewed record is forgotten at its lease's end.
    RenewalForgetsMemory,
    /// No record lives longer than ten years.
    TenYearsAtMost,
    /// A record without a result goes a ms before its time.
    MemoryEndsEarly,
    /// A consumed record goes when the lease would have ended.
    RetentionIsTheLease,
    /// Looks at its clock once, when it is opened.
    ClockReadOnce,
    /// All is judged by the clock of the client that asks.
    ClientClock,
    /// A takeover is judged by the clock of the client that asks.
    TakeoverByClientClock,

    // Connections and replies.
    /// A connection answers from what it knew of a key.
    AnswersFromMemory,
    /// A completion or release wakes those on its own connection.
    WakesItselfOnly,
    /// A refused or lost request is done all the same.
    RefusalIsDone,
    /// A lost reply is called "surely not done".
    LostReplyIsNotApplied,
    /// A refused call is called "may have been done".
    RefusalIsAmbiguous,

    // Keys and values.
    /// Keys are compared as text, without case.
    CaseFolded,
    /// A key's readable part and its hash are joined without lengths or separators.
    KeyJoined,
    /// A key is cut off behind its scope: all keys of a scope are one.
    KeyCutOff,
    /// Half of a key's hash is looked at.
    HashHalved,
    /// An empty result is kept as none.
    EmptyIsNone,
    /// Texts end at the first NUL.
    TextEndsAtNul,
    /// A value is cut off behind 64 KiB.
    ValueCutOff,

    // Records that cannot be read.
    /// What cannot be read counts as not there, and is written over.
    UnreadableIsAbsent,
    /// What cannot be read is refused, and cleared away.
    UnreadableIsDeleted,
    /// The version of a record is not looked at.
    VersionIgnored,
    /// Somebody else's value is called a damaged record.
    ForeignIsCorrupt,
    /// What cannot be read is called a mismatch where a fingerprint is given.
    UnreadableIsMismatch,
    /// A purge takes what it cannot read.
    PurgeTakesUnreadable,
    /// A listing ends without a word at what it cannot read.
    BrowseEndsAtUnreadable,
    /// A batch fails as a whole for one record that cannot be read.
    BatchFailsAsAWhole,

    // Capabilities.
    /// An capability is reported now and then.
    AbilityComesAndGoes,
    /// A batch answers in another order.
    BatchInDisorder,
    /// Browsing lists what is past its time.
    BrowseShowsExpired,
    /// A page begins with the last entry of the one before.
    BrowseRepeats,
    /// A purge takes a lease's end for the record's.
    PurgeTakesOrphans,
    /// A purge takes what is settled, though it still counts.
    PurgeTakesTheLiving,
    /// A purge does not look at how many it may.
    PurgeWithoutBound,
    /// Forgets without a look at the number.
    ForgetAnyNumber,
    /// Forgets a held key without being forced.
    ForgetHeld,
    /// Wakes at completion only.
    ReleaseWakesNobody,

    // Steps.
    /// A step is noted for whoever asks.
    StepNotedForAnybody,
    /// A note looks at the owner, lets others in, and writes without comparing.
    StepNotedWithoutCompare,
    /// The last note of a step stands, whatever it says.
    LastStepStands,
    /// Steps come back in the order of their names.
    StepsByName,
    /// Steps go with the grant they were noted under.
    StepsEndWithTheGrant,
    /// Steps stay when their record is gone.
    StepsOutliveTheRecord,
    /// Steps of all keys lie together.
    StepsOfAllKeys,

    // Order tables.
    /// A line is put back whatever was seen.
    LineWithoutCompare,
    /// A line is compared, others are let in, and it is put back without comparing.
    LineComparedFirst,
    /// A stream that nobody spoke of has an empty line.
    LineOfNothing,
    /// Lines of all streams lie together.
    LinesOfAllStreams,
    /// A line ends at its first zero.
    LineCutAtZero,
    /// A line lies where the record of its key would.
    LineInThePlaceOfARecord,
    /// A purge takes lines, whatever is left of their time.
    PurgeTakesLines,
}
