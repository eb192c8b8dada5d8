//! What is checked: how strong the adversary is, and which guard is missing.
use idempotent_core::OnExpiry;

use crate::state::Budget;

/// One thing to check.
#[derive(Clone, Copy, Debug)]
pub struct Variant {
    /// V1 to V15 as in the project's table, or a name.
    pub name: &'static str,
    /// Runs that may be under way at once.
    pub workers: u8,
    /// Deliveries of the one message.
    pub deliveries: u8,
    /// What may go wrong, and how often.
    pub budget: Budget,
    /// Runs granted before the key is buried; 0 for no limit.
    pub limit: u8,
    /// What becomes of a key whose owner let its lease run out.
    pub on_expiry: OnExpiry,
    /// Where the effect happens.
    pub effect: Effect,
    /// Which guard of the store is missing.
    pub store: Weakness,
    /// The store's requests carry the grant's number beside the owner token.
    pub numbered: bool,
    /// What a worker does that a correct one does not.
    pub worker: Habit,
    /// What tells the second sort of delivery from the first.
    pub second: Second,
    /// What a worker may do beside the least.
    pub may: May,
    /// Where the clock stands after the store lost the record.
    pub loss: Loss,
    /// Threads of the checker. With more than one, a trace need not be the shortest.
    pub threads: usize,
}

/// Where the effect happens.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Effect {
    /// Anywhere.
    Unfenced,
    /// At a resource that refuses numbers below the highest it has seen.
    Fenced,
    /// In the database that keeps the record, and in the transaction that flips it.
    Transactional,
}

/// A guard of the store that is missing.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Weakness {
    /// A completion flips whatever is there.
    pub completes_all: bool,
    /// A release takes whatever is there.
    pub releases: Releases,
    /// The number dies with the record, and the record with its lease.
    pub forgets_numbers: bool,
    /// An expired lease is never taken over.
    pub never_expires: bool,
    /// A changed payload is not looked at.
    pub ignores_payload: bool,
}

/// Whom a release obeys.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Releases {
    /// The owner of a consuming record: the protocol's guard.
    #[default]
    Guarded,
    /// The owner, in whatever state.
    AnyState,
    /// Everybody.
    Anybody,
}

/// What a broken worker does.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Habit {
    /// Nothing: it is correct.
    #[default]
    Correct,
    /// Acks after a completion that was not answered.
    AcksUnknown,
    /// Completes without the effect.
    SkipsEffect,
    /// Runs although its claim was not answered.
    RunsUngranted,
    /// Takes a claim that was not answered back by deleting, where there is no retry limit.
    DeletesUnheard,
}

/// What tells the second sort of delivery from the first.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Second {
    /// There is only one sort.
    #[default]
    None,
    /// One of the workers is old: it completes and deletes whatever is there.
    OldWorker,
    /// One of the workers judges leases by its own clock, which is ahead by more than a lease.
    FastClock,
    /// The same key with another payload.
    OtherPayload,
}

/// What a worker may do beside claim, run, complete and release.
#[derive(Clone, Copy, Debug, Default)]
pub struct May {
    /// Renews its lease, also late.
    pub renew: bool,
    /// Fails for good.
    pub fail: bool,
    /// Gives a grant back before it began.
    pub refund: bool,
    /// Takes a claim back that was not answered, knowing only its token, as a refund. The executor does; without a
    /// retry limit it deletes, see [`Habit::DeletesUnheard`].
    pub take_back: bool,
    /// Takes a completion that was not answered for a failure. The executor does not.
    pub mistake: bool,
    /// The store is purged by a janitor.
    pub purge: bool,
    /// An operator forgets consuming keys, too.
    pub force: bool,
}

/// Where the clock stands after a loss.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Loss {
    /// Behind the last grant's number, by less than a tick or by an hour: never repeated.
    #[default]
    ClockGoesOn,
    /// Before the last grant's number.
    ClockGoesBack,
}

impl Variant {
    /// V6, the protocol as it is, without a retry limit, against the table's adversary: 2 workers, 3 deliveries, a
    /// crash, 2 leases that end, a failure, a timeout.
    pub const CORRECT: Self = Self {
        name: "V6",
        workers: 2,
        deliveries: 3,
        budget: Budget { crashes: 1, expiries: 2, failures: 1, timeouts: 1, losses: 0, ends: 0, forgets: 0 },
        limit: 0,
        on_expiry: OnExpiry::Takeover,
        effect: Effect::Fenced,
        store: Weakness {
            completes_all: false,
            releases: Releases::Guarded,
            forgets_numbers: false,
            never_expires: false,
            ignores_payload: false,
        },
        numbered: true,
        worker: Habit::Correct,
        second: Second::None,
        may: May {
            renew: false,
            fail: false,
            refund: false,
            take_back: true,
            mistake: true,
            purge: false,
            force: false,
        },
        loss: Loss::ClockGoesOn,
        threads: 1,
    };
    /// Sorts of deliveries.
    #[must_use]
    pub fn sorts(&self) -> u8 {
        if self.second == Second::None { 1 } else { 2 }
    }
}
