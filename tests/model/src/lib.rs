//! An exhaustive check of `idempotent_core::protocol`, by a model checker.
//!
//! Every decision in here is taken by the protocol's own functions; the model is the world around them: workers, a
//! wire, a clock and an adversary. The checker goes through every order of everything that can happen, up to the
//! adversary's budget, and holds each step against the [invariants](invariant::Invariant). Then one guard is taken
//! away at a time, and exactly the invariants that rest on it must fall: so each guard is shown to be needed, and each
//! invariant's check is shown to be able to fail.
//!
//! ```text
//! cargo test -p idempotent-model                # all but the largest; a line for each, on stderr
//! cargo xtask soak model                        # the largest, too
//! ```
//!
//! # What is modelled
//!
//! - **One key, several workers** ([`state`]), each delivery of the one message a [run](state::Run): claim, handler,
//!   effect, completion or release; then ack, dead letter or nothing. The idle worker has no state, so which of several
//!   takes a delivery makes no difference, and the states are fewer by that.
//! - **A wire.** A request is asked, applied and answered at once, or its answer does not come (timeout), or its sender
//!   crashes: then it may be applied at any later time, or never. A worker without an answer asks again by the same
//!   token, gives up (and takes its claim back, knowing its token alone), or takes silence for failure, which the
//!   executor never does.
//! - **A clock** ([`record`]). A lease ends whenever the adversary says so, which is also a worker that pauses for
//!   longer than its lease; its owner goes on as if nothing had happened. The clock ticks, or does not, between any two
//!   grants. Times are kept as "to come" and "past", fencing numbers by their order below the clock and by their
//!   distance from there on ([`State::tick`](state::State::tick) says why that is the same; `tests/variants/scale.rs`
//!   holds it against whole records), so what differs in time alone is one state.
//! - **The executor's verdicts** ([`action`]): delete without a retry limit, vacate or bury with one, refund, fail for
//!   good, renew (also late).
//! - **Weakened guards** ([`store`]): the protocol is shown a record that would pass the guard. The variants are in
//!   [`table`].
//!
//! The state does not remember what was violated, only what the last step did; the checker is never stopped by a
//! discovery, and [`check::check`] fails unless every state was expanded.
//!
//! # What is not
//!
//! - **Real time**: how long anything takes, the local guard of a lease, delays before a retry (`not_before` is always
//!   past here, as in the executor's releases, so no claim is `Delayed`).
//! - **Several keys**: nothing in the protocol looks at two.
//! - **Liveness**, but for I13: in every state, once the lease is over, a stranger gets the key or learns its end, and
//!   a worker that is left in peace ends it: by completing, and, where there is a limit, also by failing.
//! - **What stores do beyond the protocol**: atomicity, encodings, errors. That is the conformance kit's.
//! - **The executor's code**: the simulator's.
//! - A handler that fails after a part of its effect: no marker can know.
#![allow(clippy::expect_used, reason = "a model that has no room for a state must stop there")]
pub mod action;
pub mod check;
pub mod invariant;
mod judge;
pub mod record;
pub mod state;
pub mod store;
pub mod table;
pub mod told;
pub mod variant;
pub mod world;
