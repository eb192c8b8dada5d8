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
    /// Non-atomic claim: reads, lets others in, writes.
    NonAtomicClaim,
    /// A takeover reads that the lease is over, lets others in, and writes without comparing.
    TakeoverWithoutCompare,
    /// Unconditional delete: a release that deletes does so for whoever asks, whatever is there.
    UnconditionalDelete,
    /// Unconditional flip: a completion writes "consumed" for whoever asks, whatever is there.
    UnconditionalFlip,
    /// Takes the token for the grant: the number is not looked at.
    TokenWithoutNumber,
    /// Releases by token, without a look at the state: a consumed record is undone.
    TokenWithoutState,
    /// The fencing number begins anew with each record.
    FencingStartsAnew,
    /// The same owner asking again, because the answer was lost, is counted again.
    RepetitionCounts,
    /// The same owner asking again, because the answer was lost, is told that somebody has it.
    RepetitionIsInFlight,
    /// Runs are counted when they are put down, not when they are granted: a crash counts nothing.
    AttemptCountedAtRelease,
    /// A lease may be taken over a ms early.
    EarlyTakeover,
    /// A lease that is over is not looked at: its key stays in flight.
    ExpiryIgnored,
    /// Times are kept in whole seconds, the rest is cut off.
    SecondsRounded,
    /// Renews for whoever asks.
    RenewWithoutOwner,
    /// A renewal may shorten.
    RenewalShortens,
    /// The fingerprint is compared before the state.
    FingerprintFirst,
    /// Peek shows what is past its time.
    PeekShowsExpired,
    /// Keys are compared as text, without case.
    CaseFolded,
    /// A key's readable part and its hash are joined without lengths or separators.
    KeyJoined,
    /// The last result stands, not the first.
    LastResultStands,
    /// An empty result is kept as none.
    EmptyIsNone,
    /// Put after vanish: a renewal or completion writes a record where there is none any more.
    PutAfterVanish,
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
}
