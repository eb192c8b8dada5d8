//! The variants: V1 to V15 of the project's table, and others.
use idempotent_core::OnExpiry;

use crate::state::Budget;
use crate::variant::{Effect, Habit, Loss, May, Releases, Second, Variant, Weakness};

/// V6: the complete protocol, with a fenced resource.
pub const V6: Variant = Variant::CORRECT;
/// V5: V6 with an effect that is not fenced.
pub const V5: Variant = Variant { name: "V5", effect: Effect::Unfenced, ..V6 };
/// V8: effect and completion in one transaction.
pub const V8: Variant = Variant { name: "V8", effect: Effect::Transactional, ..V6 };

const GUARDED: Weakness = V6.store;
const LOSES: Budget = Budget { losses: 1, ..V6.budget };
/// A crashed worker shows no more here than a worker that pauses forever.
const OPERATED: Budget = Budget { ends: 1, forgets: 1, crashes: 0, ..V6.budget };
const EVERYTHING: May = May { renew: true, fail: true, refund: true, ..V6.may };

/// V1: releases and completions have no guards.
pub const V1: Variant =
    Variant { name: "V1", store: Weakness { completes_all: true, releases: Releases::Anybody, ..GUARDED }, ..V5 };
/// V2: completions are guarded, releases are not.
pub const V2: Variant = Variant { name: "V2", store: Weakness { releases: Releases::Anybody, ..GUARDED }, ..V5 };
/// V3: releases are guarded, completions are not.
pub const V3: Variant = Variant { name: "V3", store: Weakness { completes_all: true, ..GUARDED }, ..V5 };
/// V4: releases are guarded by the owner token, but not by the state.
pub const V4: Variant = Variant { name: "V4", store: Weakness { releases: Releases::AnyState, ..GUARDED }, ..V5 };
/// V7: the record ends with its lease, and the fencing token with the record.
pub const V7: Variant = Variant { name: "V7", store: Weakness { forgets_numbers: true, ..GUARDED }, ..V6 };
/// V9: the store loses the record, and its clock continues.
pub const V9: Variant = Variant { name: "V9", budget: LOSES, ..V6 };
/// V10: the store loses the record, and its clock falls behind the last fencing token.
pub const V10: Variant = Variant { name: "V10", loss: Loss::ClockGoesBack, ..V9 };
/// V11: V6 with three workers.
pub const V11: Variant = Variant { name: "V11", workers: 3, ..V6 };
/// V12: V8 with three workers, four deliveries, two crashes and two timeouts.
pub const V12: Variant = Variant { name: "V12", deliveries: 4, threads: 2, ..V12_SMALL };
/// V12 with one delivery fewer.
pub const V12_SMALL: Variant =
    Variant { name: "V12, 3 deliveries", workers: 3, budget: Budget { crashes: 2, timeouts: 2, ..V6.budget }, ..V8 };
/// V13: V8, in which the marker is lost but the effects are kept.
pub const V13: Variant = Variant { name: "V13", budget: LOSES, ..V8 };
/// V14: an old worker without guards, together with a V6 worker.
pub const V14: Variant = Variant { name: "V14", second: Second::OldWorker, ..V6 };
/// V15: one worker judges leases by its own clock, which is fast.
pub const V15: Variant = Variant { name: "V15", second: Second::FastClock, ..V6 };

/// V6 with the retry limit: attempts, burial, permanent failure, refunds, renewals.
pub const LIMIT: Variant = Variant { name: "limit of 2", limit: 2, may: EVERYTHING, ..V6 };
/// [`LIMIT`] in a transaction.
pub const LIMIT_TRANSACTIONAL: Variant =
    Variant { name: "limit of 2, transactional", effect: Effect::Transactional, ..LIMIT };
/// [`LIMIT`] without a limit.
pub const RENEWS: Variant = Variant { name: "renewals", limit: 0, ..LIMIT };
/// [`RENEWS`] in a transaction.
pub const RENEWS_TRANSACTIONAL: Variant =
    Variant { name: "renewals, transactional", effect: Effect::Transactional, ..RENEWS };
/// Retention ends, a purge runs, an operator forgets settled keys.
pub const OPERATORS: Variant =
    Variant { name: "operators", budget: OPERATED, may: May { purge: true, ..EVERYTHING }, ..V6 };
/// [`OPERATORS`] in a transaction, and with a limit.
pub const OPERATORS_TRANSACTIONAL: Variant =
    Variant { name: "operators, transactional", limit: 2, effect: Effect::Transactional, ..OPERATORS };
/// An operator forgets consuming keys, too.
pub const FORCED: Variant =
    Variant { name: "operators with force", budget: OPERATED, may: May { force: true, ..V6.may }, ..V8 };
/// A key with an expired lease is parked for an operator, and silence is never mistaken for failure.
pub const PARKED: Variant =
    Variant { name: "parked", on_expiry: OnExpiry::Park, may: May { mistake: false, ..EVERYTHING }, limit: 2, ..V6 };
/// Two payloads under one key.
pub const PAYLOADS: Variant = Variant { name: "two payloads", second: Second::OtherPayload, ..V8 };
/// V11 with all other actions of a worker, a limit, and the adversary of V12.
pub const ALL: Variant = Variant { name: "V12 with a limit of 2", limit: 2, may: EVERYTHING, ..V12 };

/// The owner token without the fencing token.
pub const TOKEN_ALONE: Variant = Variant { name: "token alone", numbered: false, ..V6 };
/// [`TOKEN_ALONE`] in a transaction.
pub const TOKEN_ALONE_TRANSACTIONAL: Variant = Variant { name: "token alone, transactional", numbered: false, ..V8 };
/// V13 with the owner token alone, as in the first model.
pub const TOKEN_ALONE_LOST: Variant = Variant { name: "V13, token alone", numbered: false, ..V13 };

/// A worker acknowledges a completion without an answer.
pub const ACKS_UNKNOWN: Variant = Variant { name: "acks on unknown", worker: Habit::AcksUnknown, ..V6 };
/// A worker completes without its effect.
pub const SKIPS_EFFECT: Variant = Variant { name: "skips the effect", worker: Habit::SkipsEffect, ..V6 };
/// A worker runs without a grant if the store does not answer.
pub const RUNS_UNGRANTED: Variant = Variant { name: "runs without a grant", worker: Habit::RunsUngranted, ..V6 };
/// A worker reverts a claim without an answer by deleting the record, and with it the record's history.
pub const DELETES_UNHEARD: Variant = Variant { name: "deletes unheard", worker: Habit::DeletesUnheard, ..V8 };
/// V8, in which statements of handlers end their transactions.
pub const ENDED: Variant =
    Variant { name: "ended transactions", budget: Budget { ended_transactions: 2, ..V8.budget }, ..V8 };
/// The same with a claim that already marks the record consumed.
pub const CONSUMES_AT_CLAIM: Variant =
    Variant { name: "consumed at the claim", worker: Habit::ConsumesAtClaim, ..ENDED };
/// The store never allows a takeover.
pub const NEVER_EXPIRES: Variant =
    Variant { name: "expiry ignored", store: Weakness { never_expires: true, ..GUARDED }, ..V6 };
/// The store does not compare payloads.
pub const PAYLOAD_IGNORED: Variant =
    Variant { name: "payload ignored", store: Weakness { ignores_payload: true, ..GUARDED }, ..PAYLOADS };
/// The store loses the record, and with it the count of attempts.
pub const ATTEMPTS_LOST: Variant = Variant { name: "attempts lost", budget: LOSES, limit: 2, ..V8 };
