//! The bugs of stores.

macro_rules! bugs {
    ($($(#[$doc:meta])+ $bug:ident,)+) => {
        /// A bug of a [`Mutant`](super::Mutant).
        ///
        /// Each is a mistake that a store once had, or could have.
        #[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
        #[non_exhaustive]
        pub enum Bug {
            $($(#[$doc])+ $bug,)+
        }

        impl Bug {
            /// All bugs.
            pub const ALL: &'static [Self] = &[$(Self::$bug,)+];
        }
    };
}

bugs! {
    // Atomicity.
    /// Non-atomic claim: the store reads, lets others in, and writes.
    NonAtomicClaim,
    /// A takeover reads that the lease has expired, lets others in, and writes without comparing.
    TakeoverWithoutCompare,
    /// A late renewal, completion or release reads that it is allowed, lets others in, and writes without comparing.
    SettlingWithoutCompare,
    /// A claim counts the attempt, lets others in, and then writes the owner. If it is dropped in between, the attempt
    /// is counted.
    ClaimInTwoWrites,
    /// A completion removes the record, lets others in, and inserts a new record.
    CompletionByDeleteAndInsert,
    /// A claim is atomic only on its own connection: the lock belongs to the process, not to the records.
    AtomicPerConnection,

    // Guards.
    /// Unconditional delete: a release deletes for any caller, whatever the record.
    UnconditionalDelete,
    /// Unconditional completion: a completion writes "consumed" for any caller, whatever the record.
    UnconditionalFlip,
    /// The owner token is mistaken for the grant: the fencing token is not compared.
    TokenWithoutNumber,
    /// A release compares the owner token but not the state: a consumed record is undone.
    TokenWithoutState,
    /// A renewal succeeds for any caller.
    RenewWithoutOwner,
    /// An owner with an expired lease cannot settle, although no other owner took over.
    LateOwnerRefused,
    /// The last result is stored, not the first.
    LastResultStands,
    /// A repeated release is applied again.
    RepeatedReleaseIsDone,
    /// A renewal or completion writes a record that no longer exists.
    PutAfterVanish,

    // Claims.
    /// The same owner that claims again after a lost answer is counted again.
    RepetitionCounts,
    /// The same owner that claims again after a lost answer is reported as in flight.
    RepetitionIsInFlight,
    /// The same owner that claims again after its lease takes over from itself.
    RepetitionTakesOver,
    /// A lease can be taken over a ms early.
    EarlyTakeover,
    /// The expiry of a lease is ignored: its key stays in flight.
    ExpiryIgnored,
    /// A claim takes over although it requests parking.
    ParkIgnored,
    /// The delay of a vacant record is ignored.
    DelayIgnored,
    /// The error of the last run is dropped.
    ErrorDropped,
    /// A dead key is granted while its attempts are below the limit.
    DeadIsGranted,
    /// A failed key is granted again.
    FailedIsGranted,

    // Attempts.
    /// Runs are counted when they end, not when they are granted: a crash is not counted.
    AttemptCountedAtRelease,
    /// A refunded run is still counted.
    RefundCounts,
    /// A refund leaves a vacant record without a reason.
    RefundLeavesTrace,
    /// A refund drops the takeover of its run.
    RefundHidesTakeover,
    /// No limit is mistaken for a limit of ten.
    NoLimitIsTen,
    /// Attempts are compared before the lease: a live owner with the last attempt is buried.
    BuriesTheLiving,

    // Payloads.
    /// The fingerprint is compared before the state.
    FingerprintFirst,
    /// The fingerprint is never compared.
    FingerprintIgnored,
    /// A payload without a fingerprint is mistaken for another payload.
    NoFingerprintDiffers,
    /// The fingerprint of the first claim is never replaced.
    FingerprintStays,

    // Numbers.
    /// The fencing token restarts with each record.
    FencingStartsAnew,
    /// A takeover keeps the fencing token.
    TakeoverKeepsNumber,
    /// A deletion forgets the fencing token before the clock has passed it.
    DeletionForgetsNumber,
    /// A purge forgets the fencing token before the clock has passed it.
    PurgeForgetsNumber,
    /// Forgetting restarts the fencing token.
    ForgettingForgetsNumber,
    /// The fencing token is in ns: too large for a double.
    FencingInNanos,

    // Time.
    /// Times are truncated to whole seconds.
    SecondsRounded,
    /// A lease ends a ms late.
    LateEnd,
    /// A peek returns an expired record.
    PeekShowsExpired,
    /// A renewal can shorten a lease.
    RenewalShortens,
    /// A renewal is confirmed but not applied.
    RenewalDoesNothing,
    /// A renewed record is forgotten when its lease expires.
    RenewalForgetsMemory,
    /// No record lives longer than ten years.
    TenYearsAtMost,
    /// A record without a result expires a ms early.
    MemoryEndsEarly,
    /// A consumed record expires when its lease would have expired.
    RetentionIsTheLease,
    /// The clock is read only once, when the store is opened.
    ClockReadOnce,
    /// All times are judged by the clock of the calling client.
    ClientClock,
    /// A takeover is judged by the clock of the calling client.
    TakeoverByClientClock,

    // Connections and replies.
    /// A connection answers from a cache.
    AnswersFromMemory,
    /// A completion or release only wakes waiters of its own connection.
    WakesItselfOnly,
    /// A refused or lost request is still applied.
    RefusalIsDone,
    /// A lost reply is reported as "not applied".
    LostReplyIsNotApplied,
    /// A refused call is reported as "may have been applied".
    RefusalIsAmbiguous,

    // Keys and values.
    /// Keys are compared as text, ignoring case.
    CaseFolded,
    /// The readable part of a key and its hash are joined without lengths or separators.
    KeyJoined,
    /// A key is truncated after its scope: all keys of a scope are equal.
    KeyCutOff,
    /// Only half of a key's hash is compared.
    HashHalved,
    /// An empty result is stored as none.
    EmptyIsNone,
    /// Texts end at the first NUL.
    TextEndsAtNul,
    /// A value is truncated after 64 KiB.
    ValueCutOff,

    // Records that cannot be read.
    /// An unreadable record counts as absent, and is overwritten.
    UnreadableIsAbsent,
    /// An unreadable record is refused, and deleted.
    UnreadableIsDeleted,
    /// The version of a record is ignored.
    VersionIgnored,
    /// A foreign value is reported as a damaged record.
    ForeignIsCorrupt,
    /// An unreadable record is reported as a mismatch if the claim has a fingerprint.
    UnreadableIsMismatch,
    /// A purge removes unreadable records.
    PurgeTakesUnreadable,
    /// A search ends silently at an unreadable record.
    SearchEndsAtUnreadable,
    /// A search skips unreadable records.
    SearchHidesUnreadable,
    /// A batch fails as a whole because of one unreadable record.
    BatchFailsAsAWhole,

    // Capabilities.
    /// A capability is reported only sometimes.
    AbilityComesAndGoes,
    /// A batch returns its answers in another order.
    BatchInDisorder,
    /// A search lists expired records.
    SearchShowsExpired,
    /// A page begins with the last entry of the previous page.
    SearchRepeats,
    /// A search returns records in any state.
    SearchIgnoresStates,
    /// A search returns records of any age.
    SearchIgnoresAges,
    /// A search examines all records.
    SearchIgnoresBudget,
    /// A search returns the results of consumed records.
    SearchReturnsResults,
    /// A cursor is the number of the records before it.
    SearchCountsRecords,
    /// A purge mistakes the expiry of the lease for that of the record.
    PurgeTakesOrphans,
    /// A purge removes settled records that are still valid.
    PurgeTakesTheLiving,
    /// A purge ignores its limit.
    PurgeWithoutBound,
    /// Forgetting ignores the fencing token.
    ForgetAnyNumber,
    /// A held key is forgotten without force.
    ForgetHeld,
    /// Waiters are woken only by a completion.
    ReleaseWakesNobody,

    // Steps.
    /// A step is recorded for any caller.
    StepNotedForAnybody,
    /// A step is recorded by checking the owner, letting others in, and writing without comparing.
    StepNotedWithoutCompare,
    /// The last record of a step replaces earlier ones, whatever its state.
    LastStepStands,
    /// Steps are returned in the order of their names.
    StepsByName,
    /// Steps end with the grant under which they were recorded.
    StepsEndWithTheGrant,
    /// Steps stay when their record is deleted.
    StepsOutliveTheRecord,
    /// Steps of all keys are stored together.
    StepsOfAllKeys,

    // Order tables.
    /// An order table is written without comparing.
    LineWithoutCompare,
    /// An order table is compared, others are let in, and it is written without comparing.
    LineComparedFirst,
    /// An unknown stream has an empty order table.
    LineOfNothing,
    /// Order tables of all streams are stored together.
    LinesOfAllStreams,
    /// An order table ends at its first zero byte.
    LineCutAtZero,
    /// An order table is stored under the key of a record.
    LineInThePlaceOfARecord,
    /// A purge removes order tables before they expire.
    PurgeTakesLines,
}
