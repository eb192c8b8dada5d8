//! Whether a store lives by the clock that its subject names: if not, laws break in ways that do not say why.
#![allow(clippy::panic, reason = "this is the body of a test")]
use std::any::Any;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Duration;

use idempotent_core::{ClaimRequest, Timestamp};

use super::limit::Law;
use super::subject::HOUR;
use super::{CasSubject, Subject};

/// Of the hour that is advanced: above what passes in real time, and below an hour told in ms.
const LITTLE: Duration = Duration::from_secs(1);

/// The panic of a law that is broken.
pub(super) type Broken = Box<dyn Any + Send>;

/// Runs a law.
pub(super) async fn caught(mut law: Law<'_>) -> Result<(), Broken> {
    poll_fn(|cx| match catch_unwind(AssertUnwindSafe(|| law.as_mut().poll(cx))) {
        Ok(poll) => poll.map(Ok),
        Err(panic) => Err(panic).into(),
    })
    .await
}

/// Panics as the law did, or, if the clock is why, with a text that says so.
pub(super) async fn blame(broken: Broken, wrong: impl AsyncFnOnce() -> Option<String>) {
    // A store that is broken may not answer any more.
    match tokio::time::timeout(Duration::from_secs(5), wrong()).await {
        Ok(Some(text)) => panic!("{text}"),
        _ => resume_unwind(broken),
    }
}

/// What is wrong with the store's clock; none if nothing is, or if it cannot be told.
pub(super) async fn of_store(s: &Subject) -> Option<String> {
    let clock = s.clock.as_ref()?;
    let before = written_at(s, "clock, before").await?;
    clock.pass(HOUR).await;
    let after = written_at(s, "clock, after").await?;
    told("store", before, after)
}

/// As [`of_store`].
pub(super) async fn of_backend(s: &CasSubject) -> Option<String> {
    let clock = s.clock()?;
    let k = s.hand("clock");
    let before = k.try_now().await?;
    clock.pass(HOUR).await;
    told("backend", before, k.try_now().await?)
}

/// The time of a claim, as its record tells it.
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
