//! The variants: V1 to V15 of the project's table, and those beyond it.
use idempotent_core::OnExpiry;

use crate::state::Budget;
use crate::variant::{Effect, Habit, Loss, May, Releases, Second, Variant, Weakness};

/// V6: the protocol as it is, with a fenced resource.
pub const V6: Variant = Variant::CORRECT;
/// V5: the same with an effect that nothing fences.
pub const V5: Variant = Variant { name: "V5", effect: Effect::Unfenced, ..V6 };
/// V8: effect and completion in one transaction.
pub const V8: Variant = Variant { name: "V8", effect: Effect::Transactional, ..V6 };

const GUARDED: Weakness = V6.store;
const LOSES: Budget = Budget { losses: 1, ..V6.budget };
/// A worker that crashes shows nothing here that one that pauses for good does not.
const OPERATED: Budget = Budget { ends: 1, forgets: 1, crashes: 0, ..V6.budget };
const EVERYTHING: May = May { renew: true, fail: true, refund: true, ..V6.may };

/// V1: whoever deletes, deletes; whoever completes, completes.
pub const V1: Variant =
    Variant { name: "V1", store: Weakness { completes_all: true, releases: Releases::Anybody, ..GUARDED }, ..V5 };
/// V2: completions are guarded, deletions are not.
pub const V2: Variant = Variant { name: "V2", store: Weakness { releases: Releases::Anybody, ..GUARDED }, ..V5 };
/// V3: deletions are guarded, completions are not.
pub const V3: Variant = Variant { name: "V3", store: Weakness { completes_all: true, ..GUARDED }, ..V5 };
/// V4: deletions are guarded by the owner token, and not by the state.
pub const V4: Variant = Variant { name: "V4", store: Weakness { releases: Releases::AnyState, ..GUARDED }, ..V5 };
/// V7: the record's time is the lease, and the number dies with it.
pub const V7: Variant = Variant { name: "V7", store: Weakness { forgets_numbers: true, ..GUARDED }, ..V6 };
/// V9: the store loses the record; its clock goes on.
pub const V9: Variant = Variant { name: "V9", budget: LOSES, ..V6 };
/// V10: the store loses the record, and its clock falls behind the last number.
pub const V10: Variant = Variant { name: "V10", loss: Loss::ClockGoesBack, ..V9 };
/// V11: V6 with three workers.
pub const V11: Variant = Variant { name: "V11", workers: 3, ..V6 };
/// V12: V8 with three workers, four deliveries, two crashes and two timeouts.
pub const V12: Variant = Variant { name: "V12", deliveries: 4, threads: 2, ..V12_SMALL };
/// V12 with one delivery less.
pub const V12_SMALL: Variant =
    Variant { name: "V12, 3 deliveries", workers: 3, budget: Budget { crashes: 2, timeouts: 2, ..V6.budget }, ..V8 };
/// V13: V8, and the marker is lost while the effects are kept.
pub const V13: Variant = Variant { name: "V13", budget: LOSES, ..V8 };
/// V14: an old worker without guards beside a V6 worker.
pub const V14: Variant = Variant { name: "V14", second: Second::OldWorker, ..V6 };
/// V15: one worker judges leases by its own clock, which is fast.
pub const V15: Variant = Variant { name: "V15", second: Second::FastClock, ..V6 };

/// V6 and the retry limit: attempts, burial, failure for good, grants given back, renewals.
pub const LIMIT: Variant = Variant { name: "limit of 2", limit: 2, may: EVERYTHING, ..V6 };
/// The same in a transaction.
pub const LIMIT_TRANSACTIONAL: Variant =
    Variant { name: "limit of 2, transactional", effect: Effect::Transactional, ..LIMIT };
/// Without a limit, and everything else of [`LIMIT`].
pub const RENEWS: Variant = Variant { name: "renewals", limit: 0, ..LIMIT };
/// The same in a transaction.
pub const RENEWS_TRANSACTIONAL: Variant =
    Variant { name: "renewals, transactional", effect: Effect::Transactional, ..RENEWS };
/// Retention ends, a janitor purges, an operator forgets settled keys.
pub const OPERATORS: Variant =
    Variant { name: "operators", budget: OPERATED, may: May { purge: true, ..EVERYTHING }, ..V6 };
/// The same in a transaction, and with a limit.
pub const OPERATORS_TRANSACTIONAL: Variant =
    Variant { name: "operators, transactional", limit: 2, effect: Effect::Transactional, ..OPERATORS };
/// An operator forgets consuming keys, too.
pub const FORCED: Variant =
    Variant { name: "operators with force", budget: OPERATED, may: May { force: true, ..V6.may }, ..V8 };
/// A key whose lease ran out is parked for a person, and nothing takes silence for failure.
pub const PARKED: Variant =
    Variant { name: "parked", on_expiry: OnExpiry::Park, may: May { mistake: false, ..EVERYTHING }, limit: 2, ..V6 };
/// Two payloads under one key.
pub const PAYLOADS: Variant = Variant { name: "two payloads", second: Second::OtherPayload, ..V8 };
/// V11 with everything else that a worker may do, a limit, and V12's adversary.
pub const ALL: Variant = Variant { name: "V12 with a limit of 2", limit: 2, may: EVERYTHING, ..V12 };

/// Owner token without the grant's number.
pub const TOKEN_ALONE: Variant = Variant { name: "token alone", numbered: false, ..V6 };
/// The same in a transaction.
pub const TOKEN_ALONE_TRANSACTIONAL: Variant = Variant { name: "token alone, transactional", numbered: false, ..V8 };
/// V13 with the owner token alone, as the first model had it.
pub const TOKEN_ALONE_LOST: Variant = Variant { name: "V13, token alone", numbered: false, ..V13 };

/// A worker acks a completion it has no answer to.
pub const ACKS_UNKNOWN: Variant = Variant { name: "acks on unknown", worker: Habit::AcksUnknown, ..V6 };
/// A worker completes without having done anything.
pub const SKIPS_EFFECT: Variant = Variant { name: "skips the effect", worker: Habit::SkipsEffect, ..V6 };
/// A worker runs without a grant where the store does not answer.
pub const RUNS_UNGRANTED: Variant = Variant { name: "runs without a grant", worker: Habit::RunsUngranted, ..V6 };
/// A worker takes a claim that was not answered back by deleting the record, and what it knew.
pub const DELETES_UNHEARD: Variant = Variant { name: "deletes unheard", worker: Habit::DeletesUnheard, ..V8 };
/// The store never lets anyone take over.
pub const NEVER_EXPIRES: Variant =
    Variant { name: "expiry ignored", store: Weakness { never_expires: true, ..GUARDED }, ..V6 };
/// The store does not compare payloads.
pub const PAYLOAD_IGNORED: Variant =
    Variant { name: "payload ignored", store: Weakness { ignores_payload: true, ..GUARDED }, ..PAYLOADS };
/// The store loses the record, and what it knew of attempts.
pub const ATTEMPTS_LOST: Variant = Variant { name: "attempts lost", budget: LOSES, limit: 2, ..V8 };
