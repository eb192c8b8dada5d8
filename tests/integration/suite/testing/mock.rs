//! `MockExecutor`.
use std::sync::Arc;
use std::time::Duration;

use idempotent::store::{Claim, Dead, Grant, InFlight};
use idempotent::{
    Disposition, Executor, FencingToken, MemoryStore, OnStoreError, Outcome, Policy, Rejection, Scene, StoreErrorKind,
    idempotent,
};
use idempotent_testkit::{FOREVER, MockExecutor, StoreOperation};

use super::{ONE, told};

const SECOND: Duration = Duration::from_secs(1);

#[idempotent(key = order, scope = "charge", with = executor)]
async fn charge(executor: impl AsRef<Executor>, order: &str) -> Result<u64, Rejection> {
    Ok(500)
}

#[tokio::test]
async fn the_executor_comes_from_with_from_state_or_from_the_scope() {
    struct App {
        idem: MockExecutor,
    }
    impl AsRef<Executor> for App {
        fn as_ref(&self) -> &Executor {
            self.idem.as_ref()
        }
    }
    #[idempotent(key = order, scope = "ambient")]
    async fn ambient(order: u32) -> Result<u32, Rejection> {
        Ok(order)
    }
    let mock = MockExecutor::default();
    charge(&mock, "a").await.unwrap();
    charge(mock.clone(), "b").await.unwrap();
    charge(Arc::new(App { idem: mock.clone() }).as_ref(), "c").await.unwrap();
    mock.assert_ran("charge", 3);
    assert_eq!(mock.scope(ambient(4)).await.unwrap(), 4);
    mock.assert_ran("ambient", 1);
    mock.assert_ran("never", 0);
}

#[tokio::test]
async fn each_answer_of_a_store_can_be_had_without_waiting() {
    let (retry_after, error) = (9 * SECOND, Arc::<str>::from("no stock"));
    let fencing = FencingToken(7);
    for (answer, wanted) in [
        (Claim::InFlight(InFlight::Leased { rest: Duration::from_millis(3) }), "in_flight"),
        (Claim::Delayed { rest: retry_after }, "delayed"),
        (Claim::Failed { error: error.clone() }, "failed"),
        (Claim::Dead(Dead { attempts: 17, fencing, error }), "dead"),
        (Claim::Mismatch, "mismatch"),
        (Claim::Acquired(Grant { fencing, attempt: 3, lease: 30 * SECOND, taken_over: None }), "lease_lost"),
    ] {
        let mock = MockExecutor::new();
        mock.next_claim(answer);
        let (answer, outcome) = Outcome::capture(charge(&mock, "o-17")).await;
        assert_eq!(outcome.as_ref().unwrap().name(), wanted);
        assert!(answer.is_err());
        assert_eq!(mock.outcomes(), [outcome.unwrap()]);
        charge(&mock, "o-17").await.unwrap();
        mock.assert_ran("charge", 1);
    }
    let mock = MockExecutor::new();
    mock.next_claim(Claim::InFlight(InFlight::Leased { rest: Duration::from_millis(3) }));
    let (_, disposition) = Disposition::of(charge(&mock, "o-17")).await;
    assert_eq!(disposition, Disposition::Retry { after: Duration::from_millis(3) }, "the lease's rest");
}

#[tokio::test]
async fn scripted_answers_come_in_their_order_and_then_the_stores_own() {
    let mock = MockExecutor::new();
    mock.next_consumed(&7_u64);
    mock.next_claim(Claim::Mismatch);
    mock.next_claim(Claim::InFlight(InFlight::Busy)); // asked again at once: the store's own answer counts
    assert_eq!(charge(&mock, "o-17").await.unwrap(), 7);
    assert!(matches!(charge(&mock, "o-17").await, Err(Rejection::Mismatch)));
    assert_eq!(charge(&mock, "o-17").await.unwrap(), 500);
    let names: Vec<_> = mock.outcomes().iter().map(Outcome::name).collect();
    assert_eq!(names, ["replayed", "mismatch", "ran"]);
    // A scripted result of another type gives the same error as in production.
    mock.next_consumed(&"no number".to_owned());
    assert!(matches!(charge(&mock, "o-18").await, Err(Rejection::ConsumedWithoutResult { cause: Some(_) })));
}

/// The scripted answer was not used, so the test did not test its case.
#[tokio::test]
async fn an_unused_scripted_answer_is_reported_when_the_last_clone_is_dropped() {
    let script = |claims| {
        let mock = MockExecutor::new();
        (0..claims).for_each(|_| mock.next_claim(Claim::Mismatch));
        mock
    };
    let unused = script(1);
    let clone = unused.clone();
    drop(unused);
    let text = told(|| drop(clone));
    assert!(text.starts_with(concat!("1 scripted claim was never asked for, the first of ", file!(), ":")), "{text}");
    assert!(text.contains("did the delivery go to another executor, or fail before its claim?"), "{text}");

    let mock = script(2);
    assert!(charge(&mock, "").await.is_err(), "no key, so no claim");
    assert!(charge(Executor::new(MemoryStore::new()), "o-17").await.is_ok());
    mock.next_consumed(&7_u64);
    assert!(charge(&mock, "o-17").await.is_err());
    assert!(told(|| drop(mock)).contains("2 scripted claims were never asked for"));

    // The executor outlives the mock, and can still be asked.
    let mock = script(1);
    let executor: Executor = mock.as_ref().clone();
    drop(mock);
    assert!(matches!(charge(&executor, "o-17").await, Err(Rejection::Mismatch)));
    drop(executor);

    // The executor has run handlers, and does not live on in its heartbeats.
    let mock = script(0);
    slow(&mock).await.unwrap();
    mock.next_claim(Claim::Mismatch);
    assert!(told(|| drop(mock)).contains("1 scripted claim was"));

    // A test that fails already says why; a second panic would abort it.
    let text = told(|| {
        let _mock = script(1);
        panic!("{}", "its own reason");
    });
    assert_eq!(text, "its own reason");
}

#[tokio::test]
async fn a_store_that_is_down_or_loses_replies_needs_no_clock_to_be_moved() {
    let mock = MockExecutor::new();
    mock.store().down();
    assert!(matches!(charge(&mock, "o-17").await, Err(Rejection::Store(_))));
    mock.store().up();
    mock.store().lose_reply(StoreOperation::Claim, 1);
    mock.store().lose_reply(StoreOperation::Complete, 2);
    charge(&mock, "o-17").await.unwrap();
    mock.store().fail_before(StoreOperation::Complete, FOREVER);
    assert!(matches!(charge(&mock, "o-18").await, Err(Rejection::Unrecorded { .. })));
    assert_eq!(mock.outcomes(), [Outcome::StoreDown(StoreErrorKind::NotApplied), Outcome::Ran, Outcome::Unrecorded]);

    let policy = Policy::new().on_store_error(OnStoreError::RunUnprotected);
    let mock = MockExecutor::configured(|builder| builder.policy(Scene::Mq, policy)).unwrap();
    mock.store().down();
    assert_eq!(charge(&mock, "o-17").await.unwrap(), 500);
    assert_eq!(mock.outcomes(), [Outcome::Unprotected]);
    mock.assert_ran("charge", 0);
}

/// Its pauses end by a clock that settles, which it cannot on several threads.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[should_panic = "VirtualClock needs a current_thread runtime"]
async fn a_store_outage_on_several_threads_is_reported_without_a_hang() {
    let mock = MockExecutor::new();
    mock.store().down();
    let _ = charge(&mock, "o-17").await;
}

#[tokio::test]
async fn its_policies_are_checked_as_the_services_are() {
    let nonsense = Policy::new().lease(Duration::ZERO);
    let error = MockExecutor::configured(|builder| builder.policy(Scene::Mq, nonsense)).unwrap_err();
    assert!(error.to_string().contains("lease is 0s"), "{error}");
}

#[tokio::test]
async fn time_moves_on_demand_and_the_log_tells_attempts_and_takeovers() {
    let mock = MockExecutor::new();
    let abandoned = idempotent_testkit::crash_at(1, slow(&mock));
    assert!(abandoned.await.is_none());
    mock.clock().advance(30 * SECOND).await;
    slow(&mock).await.unwrap();
    mock.clock().advance(8 * 24 * 3600 * SECOND).await;
    slow(&mock).await.unwrap();
    let log: Vec<_> = mock.log().iter().map(|ended| (ended.attempt, ended.took_over, ended.outcome.name())).collect();
    assert_eq!(log, [(Some(1), false, "abandoned"), (Some(2), true, "ran"), (Some(1), false, "ran")]);
    let last = &mock.log()[1];
    assert_eq!((&last.scene, last.scope.as_str(), last.elapsed), (&Scene::Mq, "slow", Duration::ZERO));
    let key = last.key.as_ref().unwrap();
    assert_eq!(last.to_string(), format!("slow: ran, attempt 2, took over, {key}"));
}

#[idempotent(key = const { ONE }, scope = "slow", scene = mq, with = executor)]
async fn slow(executor: &MockExecutor) -> Result<(), Rejection> {
    tokio::task::yield_now().await;
    Ok(())
}

#[tokio::test]
async fn another_number_of_runs_is_reported_with_the_log() {
    let mock = MockExecutor::new();
    let text = told(|| mock.assert_ran("charge", 1));
    assert!(text.contains("`charge` ran 0 times, not 1; no delivery has reached this executor"), "{text}");
    charge(&mock, "o-17").await.unwrap();
    charge(&mock, "o-17").await.unwrap();
    assert!(charge(&mock, "").await.is_err());
    let text = told(|| mock.assert_ran("charge", 2));
    assert!(text.contains("`charge` ran 1 times, not 2\n  charge: ran, attempt 1, idempotent:mq:charge:{"), "{text}");
    assert!(
        text.contains("\n  charge: replayed, idem") && text.contains("\n  charge: bad_key, no usable key"),
        "{text}"
    );
    assert!(!text.contains("o-17"), "{text}");
    let text = told(|| mock.assert_ran("charged", 1));
    assert!(text.contains("nothing was delivered to it, but to charge: fix it by `scope = \"…\"`"), "{text}");
}
