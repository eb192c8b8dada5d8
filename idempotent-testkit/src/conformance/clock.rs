//! Checks that a store uses the clock of its subject. With another clock, laws fail without showing the reason.
#![allow(clippy::panic, reason = "this is the body of a test")]
use std::any::Any;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Duration;

use idempotent_core::{ClaimRequest, Timestamp};

use super::limit::Law;
use super::subject::HOUR;
use super::{CasSubject, Subject};

/// A tolerance for the advanced hour: more than passes in real time, and less than an hour in ms.
const LITTLE: Duration = Duration::from_secs(1);

/// The panic of a broken law.
pub(super) type Broken = Box<dyn Any + Send>;

/// Runs a law.
pub(super) async fn caught(mut law: Law<'_>) -> Result<(), Broken> {
    poll_fn(|cx| match catch_unwind(AssertUnwindSafe(|| law.as_mut().poll(cx))) {
        Ok(poll) => poll.map(Ok),
        Err(panic) => Err(panic).into(),
    })
    .await
}

/// Panics like the law or, if the clock is the reason, with a message that names it.
pub(super) async fn blame(broken: Broken, wrong: impl AsyncFnOnce() -> Option<String>) {
    // A broken store may not answer any more.
    match tokio::time::timeout(Duration::from_secs(5), wrong()).await {
        Ok(Some(text)) => panic!("{text}"),
        _ => resume_unwind(broken),
    }
}

/// Returns what is wrong with the store's clock, or `None` if nothing is wrong or the clock cannot be checked.
pub(super) async fn of_store(s: &Subject) -> Option<String> {
    let clock = s.clock.as_ref()?;
    let before = written_at(s, "clock, before").await?;
    clock.pass(HOUR).await;
    let after = written_at(s, "clock, after").await?;
    told("store", before, after)
}

/// Checks the clock like [`of_store`].
pub(super) async fn of_backend(s: &CasSubject) -> Option<String> {
    let clock = s.clock()?;
    let k = s.hand("clock");
    let before = k.try_now().await?;
    clock.pass(HOUR).await;
    told("backend", before, k.try_now().await?)
}

/// Returns the time of a claim, from its record.
async fn written_at(s: &Subject, key: &str) -> Option<Timestamp> {
    let ask = ClaimRequest { lease: 3 * HOUR, ..s.ask_on(key, 1) };
    s.store.claim(&ask).await.ok()?;
    Some(s.store.peek(&ask.key).await.ok()??.updated_at)
}

fn told(what: &str, before: Timestamp, after: Timestamp) -> Option<String> {
    let passed = after - before;
    (passed < LITTLE).then(|| {
        format!(
            "the {what} does not live by the clock given to `on_clock`: that one was moved by an hour, and for the \
             {what} {passed:?} passed. Build the {what} on a clone of that clock, or, where its time is a server's, \
             leave `on_clock` out; until then laws break for no other reason"
        )
    })
}
