//! Results that runs store in a record and read back, on each server.
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use idempotent_core::{
    Call, Claim, ClaimRequest, DefaultReply, Executor, Handler, Identity, Json, Outcome, Rejection, ReleaseKind, Scene,
    State, Store,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::fixture::Place;
use crate::support::{held, key, release, request};

async fn deliver<T>(executor: &Executor, answer: T, runs: &AtomicU32) -> (Result<T, Rejection>, Outcome)
where
    T: Serialize + DeserializeOwned + Send + Sync + 'static,
{
    let handler = Handler::<DefaultReply, Json, _, _>::new(|| async {
        runs.fetch_add(1, SeqCst);
        Ok::<_, Rejection>(answer)
    });
    let call = Call::new(Identity::new(Scene::Mq, "results", "k"));
    let (answer, outcome) = Outcome::capture(executor.run(call, handler)).await;
    (answer, outcome.unwrap())
}

/// A column of text would refuse it, or cut it off.
#[tokio::test]
async fn nul_bytes_in_results_errors_and_display_keys_come_back_as_they_were() {
    let store = Place::new().open().await;
    let (executor, runs) = (Executor::new(store.clone()), AtomicU32::new(0));
    let answer = "before\0behind".to_owned();
    for outcome in [Outcome::Ran, Outcome::Replayed] {
        let told = deliver(&executor, answer.clone(), &runs).await;
        assert_eq!((told.0.unwrap(), told.1), (answer.clone(), outcome));
    }
    assert_eq!(runs.into_inner(), 1);

    let a = key("a\0b");
    let ask = ClaimRequest { display: Some("a\0b".into()), ..request(&a, 1) };
    assert!(matches!(store.claim(&ask).await.unwrap(), Claim::Acquired(_)));
    assert_eq!(store.peek(&a).await.unwrap().unwrap().display.as_deref(), Some("a\0b"));
    let fail = idempotent_core::Release { error: "no\0stock".into(), ..release(ReleaseKind::MarkFailed) };
    store.release(&held(&a, 1), &fail).await.unwrap();
    let State::Failed { error } = store.peek(&a).await.unwrap().unwrap().state else { panic!("not failed") };
    assert_eq!(&*error, "no\0stock");
}

/// A version with an additional field reads the result of the previous version.
#[tokio::test]
async fn the_result_of_an_older_type_is_consumed_without_a_value_and_never_run_again() {
    #[derive(Debug, Deserialize, Serialize)]
    struct Older {
        id: u64,
    }
    #[derive(Debug, Deserialize, Serialize)]
    struct Receipt {
        id: u64,
        added_later: String,
    }
    let (executor, runs) = (Executor::new(Place::new().open().await), AtomicU32::new(0));
    let (older, outcome) = deliver(&executor, Older { id: 7 }, &runs).await;
    assert_eq!((older.unwrap().id, outcome), (7, Outcome::Ran));
    let (answer, outcome) = deliver(&executor, Receipt { id: 0, added_later: String::new() }, &runs).await;
    let Err(Rejection::ConsumedWithoutResult { cause: Some(cause) }) = answer else { panic!("{answer:?}") };
    assert!(cause.to_string().contains("added_later"), "{cause}");
    assert_eq!((outcome, runs.into_inner()), (Outcome::ConsumedWithoutResult, 1));
}

/// A disk without room, as the server says it.
#[tokio::test]
async fn a_full_disk_is_not_applied_and_nothing_is_lost() {
    let place = Place::new();
    let store = place.open().await;
    let a = key("a");
    store.claim(&request(&a, 1)).await.unwrap();
    place.fill_disk(true);
    let completed = store.complete(&held(&a, 1), &crate::support::done(b"paid")).await;
    let words = ["out of disk space", "free some"];
    super::setup::refused(completed, idempotent_core::StoreErrorKind::NotApplied, &words);
    let claimed = store.claim(&request(&key("b"), 1)).await;
    super::setup::refused(claimed, idempotent_core::StoreErrorKind::NotApplied, &words);
    place.fill_disk(false);
    let settled = store.complete(&held(&a, 1), &crate::support::done(b"paid")).await.unwrap();
    assert_eq!(settled, idempotent_core::Settled::Done);
    assert!(matches!(store.claim(&request(&key("b"), 1)).await.unwrap(), Claim::Acquired(_)));
}
