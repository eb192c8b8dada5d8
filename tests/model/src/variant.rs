//! The variants of the check: the strength of the adversary, and the missing guard.
use idempotent_core::OnExpiry;

use crate::state::Budget;

/// A variant of the check.
#[derive(Clone, Copy, Debug)]
pub struct Variant {
    /// V1 to V15 as in the project's table, or a name.
    pub name: &'static str,
    /// The maximum number of concurrent runs.
    pub workers: u8,
    /// The deliveries of the single message.
    pub deliveries: u8,
    /// The adversary's actions, and their numbers.
    pub budget: Budget,
    /// The number of granted runs before the key is buried; 0 for no limit.
    pub limit: u8,
    /// The treatment of a key whose lease expired.
    pub on_expiry: OnExpiry,
    /// The place of the effect.
    pub effect: Effect,
    /// The missing guard of the store.
    pub store: Weakness,
    /// True if the store's requests contain the fencing token in addition to the owner token.
    pub numbered: bool,
    /// The deviation of a worker from a correct one.
    pub worker: Habit,
    /// The difference of the second sort of delivery.
    pub second: Second,
    /// The optional actions of a worker.
    pub may: May,
    /// The clock after the store has lost the record.
    pub loss: Loss,
    /// The threads of the checker. With more than one, a trace may not be the shortest.
    pub threads: usize,
}

/// The place of the effect.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Effect {
    /// Any place.
    Unfenced,
    /// A resource that rejects fencing tokens below the highest it has seen.
    Fenced,
    /// The database of the record, in the transaction that completes the record.
    Transactional,
}

/// A missing guard of the store.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Weakness {
    /// True if a completion ignores the record.
    pub completes_all: bool,
    /// The guard of a release.
    pub releases: Releases,
    /// True if the record ends with its lease, and the fencing token with the record.
    pub forgets_numbers: bool,
    /// True if an expired lease is never taken over.
    pub never_expires: bool,
    /// True if a different payload is ignored.
    pub ignores_payload: bool,
}

/// The guard of a release.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Releases {
    /// The owner of a consuming record, as in the protocol.
    #[default]
    Guarded,
    /// The owner, in any state.
    AnyState,
    /// No guard.
    Anybody,
}

/// The deviation of a broken worker.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Habit {
    /// The worker is correct.
    #[default]
    Correct,
    /// The worker acknowledges after a completion without an answer.
    AcksUnknown,
    /// The worker completes without the effect.
    SkipsEffect,
    /// The worker runs although its claim has no answer.
    RunsUngranted,
    /// The claim in the transaction of the effect already marks the record consumed.
    ConsumesAtClaim,
    /// The worker reverts a claim without an answer by deleting, if there is no retry limit.
    DeletesUnheard,
}

/// The difference of the second sort of delivery.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Second {
    /// There is one sort of worker.
    #[default]
    None,
    /// One of the workers is old: it completes and deletes any record.
    OldWorker,
    /// One of the workers judges leases by its own clock, which is ahead by more than a lease.
    FastClock,
    /// The same key with another payload.
    OtherPayload,
}

/// The optional actions of a worker, in addition to claim, run, complete and release.
#[derive(Clone, Copy, Debug, Default)]
pub struct May {
    /// True if the worker renews its lease, also late.
    pub renew: bool,
    /// True if the worker reports permanent failures.
    pub fail: bool,
    /// True if the worker refunds a grant before its run began.
    pub refund: bool,
    /// True if the worker reverts a claim without an answer as a refund, knowing only its owner token. The executor
    /// does so; without a retry limit it deletes, see [`Habit::DeletesUnheard`].
    pub take_back: bool,
    /// True if the worker mistakes a completion without an answer for a failure. The executor does not.
    pub mistake: bool,
    /// True if the store is purged.
    pub purge: bool,
    /// True if an operator forgets consuming keys, too.
    pub force: bool,
}

/// The clock after a loss.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Loss {
    /// The clock goes back by less than a tick or by an hour, and the last fencing token is never repeated.
    #[default]
    ClockGoesOn,
    /// Before the last fencing token.
    ClockGoesBack,
}

impl Variant {
    /// V6, the complete protocol without a retry limit, against the adversary of the table: 2 workers, 3 deliveries, a
    /// crash, 2 expired leases, a failure, a timeout.
    pub const CORRECT: Self = Self {
        name: "V6",
        workers: 2,
        deliveries: 3,
        budget: Budget {
            crashes: 1,
            expiries: 2,
            failures: 1,
            timeouts: 1,
            losses: 0,
            ends: 0,
            forgets: 0,
            ended_transactions: 0,
        },
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
    /// Returns the number of sorts of deliveries.
    #[must_use]
    pub fn sorts(&self) -> u8 {
        if self.second == Second::None { 1 } else { 2 }
    }
}
