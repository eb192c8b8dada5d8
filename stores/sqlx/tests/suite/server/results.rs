//! Results that runs store in a record and read back, on each server.
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use idempotent_core::store::{Health as _, Severity};
use idempotent_core::{
    Batch as _, Call, Claim, ClaimRequest, DefaultReply, Executor, Handler, Identity, Json, Outcome, Rejection,
    ReleaseKind, Scene, Settled, State, Store, StoreErrorKind,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::fixture::Place;
use crate::support::{done, held, key, release, request};

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
    place.fill_disk(Some("true"));
    let completed = store.complete(&held(&a, 1), &done(b"paid")).await;
    let words = ["out of disk space", "free some"];
    super::setup::refused(completed, StoreErrorKind::NotApplied, &words);
    let claimed = store.claim(&request(&key("b"), 1)).await;
    super::setup::refused(claimed, StoreErrorKind::NotApplied, &words);
    place.fill_disk(None);
    let settled = store.complete(&held(&a, 1), &done(b"paid")).await.unwrap();
    assert_eq!(settled, Settled::Done);
    assert!(matches!(store.claim(&request(&key("b"), 1)).await.unwrap(), Claim::Acquired(_)));
}

/// The effect of the run is done, so a retry would double it. The server reports its real error, from a trigger: a server whose disk is
/// really full may end, as MariaDB does.
#[tokio::test]
async fn a_result_that_a_full_disk_has_no_room_for_is_left_out_and_no_run_begins_until_it_fits() {
    for in_a_batch in [false, true] {
        let place = Place::new();
        let store = place.open().await;
        let (large, small) = ([7; 3_000], [7; 4]);
        for part in ["a", "b"] {
            store.claim(&request(&key(part), 1)).await.unwrap();
        }
        place.fill_disk(Some("length(NEW.value) > 1000"));
        let both = [(held(&key("a"), 1), done(&large)), (held(&key("b"), 1), done(&small))];
        let completed = match in_a_batch {
            false => vec![store.complete(&both[0].0, &both[0].1).await, store.complete(&both[1].0, &both[1].1).await],
            true => store.complete_all(&both).await,
        };
        assert!(completed.into_iter().all(|settled| settled.unwrap() == Settled::Done));
        let value = async |part| {
            let Claim::Consumed(found) = store.claim(&request(&key(part), 2)).await.unwrap() else { panic!("{part}") };
            found.value
        };
        assert_eq!((value("a").await, value("b").await), (None, Some(Arc::from(small))), "what fits is stored");
        let words = ["full", "consumed without its result of 3000 bytes", "free some space"];
        super::setup::refused(store.claim(&request(&key("c"), 1)).await, StoreErrorKind::NotApplied, &words);
        let mut told = store.claim_all(&[request(&key("b"), 2), request(&key("c"), 1)]).await;
        super::setup::refused(told.remove(1), StoreErrorKind::NotApplied, &words);
        assert!(matches!(told.remove(0).unwrap(), Claim::Consumed(_)));
        let report = store.check().await.unwrap();
        super::health::shared::expect(&report, "space", Severity::Refuse, &words);

        place.fill_disk(None);
        assert!(matches!(store.claim(&request(&key("c"), 1)).await.unwrap(), Claim::Acquired(_)));
        assert_eq!(value("a").await, Some(Arc::from(large)), "the result is stored after all");
        super::health::shared::expect(&store.check().await.unwrap(), "space", Severity::Ok, &[]);
    }
}

/// The caller of the run gets the result, and a duplicate learns that it was not kept.
#[tokio::test]
async fn a_run_whose_result_a_full_disk_has_no_room_for_answers_its_caller_and_is_not_repeated() {
    let place = Place::new();
    let (executor, runs) = (Executor::new(place.open().await), AtomicU32::new(0));
    place.fill_disk(Some("length(NEW.value) > 1000"));
    let answer = "x".repeat(3_000);
    let (told, outcome) = deliver(&executor, answer.clone(), &runs).await;
    assert_eq!((told.unwrap(), outcome), (answer.clone(), Outcome::Ran));
    let (told, outcome) = deliver(&executor, answer.clone(), &runs).await;
    assert!(matches!(told, Err(Rejection::ConsumedWithoutResult { .. })), "{told:?}");
    assert_eq!((outcome, runs.load(SeqCst)), (Outcome::ConsumedWithoutResult, 1));
    place.fill_disk(None);
    let call = Call::new(Identity::new(Scene::Mq, "results", "another"));
    let handler = Handler::<DefaultReply, Json, _, _>::new(|| async { Ok::<_, Rejection>("ran".to_owned()) });
    assert_eq!(executor.run(call, handler).await.unwrap(), "ran");
    let (told, outcome) = deliver(&executor, answer.clone(), &runs).await;
    assert_eq!((told.unwrap(), outcome), (answer, Outcome::Replayed));
}
