//! `run_twice` and `run_at_once`.
use std::cell::Cell;

use idempotent::{Executor, MemoryStore, Outcome, Rejection, idempotent};
use idempotent_testkit::{MockExecutor, run_at_once, run_twice};
use tokio::task::yield_now;

use super::{ONE, told};

#[idempotent(key = order, scope = "charge")]
async fn charge(order: &str, cents: u64) -> Result<u64, Rejection> {
    yield_now().await;
    Ok(cents)
}

#[tokio::test]
async fn a_handler_that_runs_once_passes_and_both_answers_can_be_looked_at() {
    let cents = Cell::new(500);
    let twice = MockExecutor::new().scope(run_twice(|| charge("o-17", cents.replace(900)))).await;
    twice.assert_ran_once();
    assert_eq!((twice.first.answer.unwrap(), twice.first.outcome), (500, Some(Outcome::Ran)));
    assert_eq!((twice.second.answer.unwrap(), twice.second.outcome), (500, Some(Outcome::Replayed)));
}

#[tokio::test]
async fn a_duplicate_without_its_result_is_a_duplicate_all_the_same() {
    #[idempotent(key = const { ONE }, scope = "large", max_result = "1B")]
    async fn large() -> Result<String, Rejection> {
        Ok("more than one byte".into())
    }
    let twice = MockExecutor::new().scope(run_twice(large)).await;
    twice.assert_ran_once();
    assert_eq!(twice.second.outcome, Some(Outcome::ConsumedWithoutResult));
}

#[tokio::test]
async fn a_key_that_differs_between_deliveries_is_reported() {
    let delivered = Cell::new(0);
    let unstable = async || {
        delivered.update(|n| n + 1);
        charge(&format!("delivery-{}", delivered.get()), 500).await
    };
    let twice = MockExecutor::new().scope(run_twice(unstable)).await;
    let text = told(|| twice.assert_ran_once());
    assert!(text.contains("the second delivery ran again: their keys differ"), "{text}");
    assert!(text.contains("what all copies of a message have in common"), "{text}");
}

/// `outcome` is one for both handlers, and the replay would hide the run.
#[tokio::test]
async fn a_handler_that_runs_again_next_to_a_replayed_one_is_reported() {
    #[idempotent(key = order, scope = "mail", with = mock)]
    async fn mail(mock: &MockExecutor, order: &str) -> Result<(), Rejection> {
        Ok(())
    }
    let told_of = "in the second delivery a handler ran again beside `replayed`: their keys differ";
    let delivered = Cell::new(0);
    let new_key = || format!("delivery-{}", delivered.replace(delivered.get() + 1));
    let in_turn = async || {
        charge(&new_key(), 5).await.unwrap();
        charge("o-17", 5).await.unwrap();
    };
    let twice = MockExecutor::new().scope(run_twice(in_turn)).await;
    assert_eq!(twice.second.outcome, Some(Outcome::Replayed));
    let text = told(|| twice.assert_ran_once());
    assert!(text.contains(told_of), "{text}");

    let twice = Executor::new(MemoryStore::new()).scope(run_twice(in_turn)).await;
    assert!(told(|| twice.assert_ran_once()).contains(told_of));

    let in_a_task = async || {
        let key = new_key();
        Executor::detach(async move { charge(&key, 5).await.unwrap() }).await;
        charge("o-17", 5).await.unwrap();
    };
    let twice = MockExecutor::new().scope(run_twice(in_a_task)).await;
    assert!(told(|| twice.assert_ran_once()).contains(told_of));

    let mock = MockExecutor::new();
    let by_with = async || {
        mail(&mock, &new_key()).await.unwrap();
        mail(&mock, "o-17").await.unwrap();
    };
    let twice = run_twice(by_with).await;
    assert!(told(|| twice.assert_ran_once()).contains(told_of));

    let side_by_side = async || {
        let key = new_key();
        tokio::join!(charge(&key, 5), charge("o-17", 5))
    };
    let crowd = MockExecutor::new().scope(run_at_once(3, side_by_side)).await;
    assert!(told(|| crowd.assert_ran_once()).contains("3 of 3 deliveries ran: their keys differ"));
}

/// An effect that another delivery started does not count for this one.
#[tokio::test]
async fn a_run_inside_a_run_and_one_left_over_from_the_first_delivery_are_no_second_run() {
    #[idempotent(key = order, scope = "outer")]
    async fn outer(order: &str) -> Result<u64, Rejection> {
        charge(order, 5).await
    }
    let left_over = async || {
        outer("o-17").await.unwrap();
        let executor = Executor::current().unwrap();
        tokio::spawn(async move { executor.scope(charge("behind", 5)).await });
        yield_now().await; // it has begun
    };
    MockExecutor::new().scope(run_twice(left_over)).await.assert_ran_once();
    MockExecutor::new().scope(run_at_once(3, async || outer("o-17").await.unwrap_or_default())).await.assert_ran_once();
}

#[tokio::test]
async fn a_separate_store_for_each_delivery_is_reported() {
    let twice = run_twice(async || Executor::new(MemoryStore::new()).scope(charge("o-17", 500)).await).await;
    let text = told(|| twice.assert_ran_once());
    assert!(text.contains("or their executors' stores do"), "{text}");
}

#[tokio::test]
async fn other_causes_of_a_first_delivery_that_does_not_run_are_reported_with_the_remedy() {
    #[idempotent(key = order, scope = "fails")]
    async fn fails(order: &str) -> anyhow::Result<()> {
        anyhow::bail!("no stock for {order}")
    }
    let mock = MockExecutor::new();
    let twice = run_twice(|| charge("o-17", 5)).await;
    let text = told(|| twice.assert_ran_once());
    assert!(text.contains("`no_executor`; there is no executor: wrap the test in `MockExecutor::new()"), "{text}");

    let twice = run_twice(async || 7).await;
    let text = told(|| twice.assert_ran_once());
    assert!(text.contains("came to nothing; no run was seen: the handler has no `#[idempotent(…)]`"), "{text}");

    let twice = mock.scope(run_twice(|| fails("o-17"))).await;
    let text = told(|| twice.assert_ran_once());
    assert!(text.contains("`released`; the handler failed: see `twice.first.answer`"), "{text}");
    assert!(!text.contains("o-17"), "answers are not shown: {text}");

    let twice = mock.scope(run_twice(|| charge("", 5))).await;
    let text = told(|| twice.assert_ran_once());
    assert!(text.contains("`bad_key`; the key is missing"), "{text}");

    mock.scope(charge("o-17", 5)).await.unwrap();
    let twice = mock.scope(run_twice(|| charge("o-17", 5))).await;
    let text = told(|| twice.assert_ran_once());
    assert!(text.contains("`replayed`; its key was used before"), "{text}");
}

#[tokio::test]
async fn a_fingerprint_of_changing_data_is_reported() {
    #[idempotent(key = order, scope = "print", fingerprint = attempt)]
    async fn print(order: &str, attempt: u32) -> Result<(), Rejection> {
        let _ = (order, attempt);
        Ok(())
    }
    let attempt = Cell::new(0);
    let twice = MockExecutor::new().scope(run_twice(|| print("o-17", attempt.replace(attempt.get() + 1)))).await;
    let text = told(|| twice.assert_ran_once());
    assert!(text.contains("the second delivery came to `mismatch`; the fingerprint differs"), "{text}");
}

#[tokio::test]
async fn one_of_several_concurrent_deliveries_runs_and_the_others_receive_a_retry_delay() {
    let mock = MockExecutor::new();
    let crowd = mock.scope(run_at_once(5, || charge("o-17", 500))).await;
    crowd.assert_ran_once();
    let in_flight = |outcome: &Option<Outcome>| matches!(outcome, Some(Outcome::InFlight { .. }));
    assert_eq!(crowd.deliveries.iter().filter(|delivery| in_flight(&delivery.outcome)).count(), 4);
    assert_eq!(crowd.deliveries[0].answer.as_ref().unwrap(), &500);

    let again = mock.scope(run_at_once(2, || charge("o-17", 500))).await;
    let text = told(|| again.assert_ran_once());
    assert!(text.contains("none of 2 deliveries ran; its key was used before"), "{text}");
}

#[tokio::test]
async fn concurrent_deliveries_that_run_at_once_are_reported() {
    let begun = Cell::new(0);
    let unstable = async || {
        begun.update(|n| n + 1);
        charge(&format!("delivery-{}", begun.get()), 500).await
    };
    let crowd = MockExecutor::new().scope(run_at_once(3, unstable)).await;
    let text = told(|| crowd.assert_ran_once());
    assert!(text.contains("3 of 3 deliveries ran: their keys differ"), "{text}");
    let crowd = run_at_once(3, || charge("o-17", 500)).await;
    let text = told(|| crowd.assert_ran_once());
    assert!(text.contains("delivery 1 came to `no_executor`; there is no executor"), "{text}");
}
