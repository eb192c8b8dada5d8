//! An exhaustive check of `idempotent_core::protocol` by a model checker.
//!
//! The protocol's own functions take every decision. The model is their environment: workers, a network, a clock and an
//! adversary. The checker visits every order of all possible actions, up to the adversary's budget, and checks each
//! step against the [invariants](invariant::Invariant). In addition, variants remove one guard each, and exactly the
//! invariants that depend on it must fail. This shows that each guard is needed, and that the check of each invariant
//! can fail.
//!
//! ```text
//! cargo test -p idempotent-model                # all but the largest; a line for each, on stderr
//! cargo xtask soak model                        # the largest, too
//! ```
//!
//! # Scope of the model
//!
//! - **One key, several workers** ([`state`]). Each delivery of the single message is a [run](state::Run): claim,
//!   handler, effect, completion or release; then an acknowledgement, a dead letter or nothing. An idle worker has no
//!   state, so it makes no difference which worker takes a delivery, and there are fewer states.
//! - **A network.** A request is sent, applied and answered at once, or its answer is lost (timeout), or its sender
//!   crashes: then it may be applied at any later time, or never. A worker without an answer repeats the request with
//!   the same owner token, gives up (and reverts its claim by its owner token alone), or mistakes the silence for a
//!   failure, which the executor never does.
//! - **A clock** ([`record`]). A lease expires whenever the adversary decides. This also models a worker that pauses
//!   for longer than its lease; its owner continues unaware. Between two grants, the clock ticks or does not tick.
//!   Times are reduced to "to come" and "past". Fencing tokens are reduced to their order below the clock, and to their
//!   distance above it ([`State::tick`](state::State::tick) explains why this is equivalent, and
//!   `tests/variants/scale.rs` compares it with whole records). States that differ only in times are therefore equal.
//! - **The executor's decisions** ([`action`]): delete without a retry limit, vacate or bury with one, refund,
//!   permanent failure, and renewal (also late).
//! - **Weakened guards** ([`store`]): the protocol gets a record that would pass the guard. The variants are in
//!   [`table`].
//!
//! A state does not contain earlier violations, only the results of the last step. A discovery never stops the checker,
//! and [`check::check`] fails unless every state was expanded.
//!
//! # Outside of the model
//!
//! - **Real time**: durations, the local guard of a lease, and delays before a retry (`not_before` is always past here,
//!   as in the executor's releases, so no claim is `Delayed`).
//! - **Several keys**: no part of the protocol depends on two keys.
//! - **Liveness**, except for I13: in every state, after the end of the lease, another worker gets the key or its final
//!   state, and an undisturbed worker ends the key: by completing it and, if there is a limit, also by failing.
//! - **Properties of stores beyond the protocol**: atomicity, encodings, errors. The test kit covers these.
//! - **The executor's code**, which the simulator covers.
//! - A handler that fails after a part of its effect, which no marker can detect. If a statement of the handler ends its
//!   transaction, the part is committed: the model counts only the whole effect.
#![allow(clippy::expect_used, reason = "a model that has no room for a state must stop there")]
pub mod action;
pub mod check;
pub mod invariant;
mod judge;
pub mod record;
pub mod skewed_clocks;
pub mod state;
pub mod store;
pub mod table;
pub mod trace_text;
pub mod variant;
pub mod world;
