//! Functions over many items, each with a key: `batch = item in items`.
use super::*;

#[derive(Clone, Debug)]
struct Order {
    id: u32,
    customer: &'static str,
    amount: u32,
}

fn order(id: u32, amount: u32) -> Order {
    Order { id, customer: "ann", amount }
}

/// Returns the amount and the number of the run, and fails for amount 0.
#[idempotent(batch = order in orders, key = order.id, tenant = order.customer, fingerprint = order.amount, with = worker.executor)]
async fn book(worker: &Worker, mut orders: Vec<Order>, _note: &str) -> Vec<Result<(u32, u32), AppError>> {
    let run = ran();
    orders
        .drain(..)
        .map(|order| if order.amount == 0 { Err(AppError::NoStock) } else { Ok((order.amount, run)) })
        .collect()
}

fn booked(answers: Vec<Result<(u32, u32), AppError>>) -> Vec<Option<(u32, u32)>> {
    answers.into_iter().map(Result::ok).collect()
}

#[tokio::test]
async fn the_body_receives_the_items_whose_keys_are_free() {
    let worker = World::memory().worker("a", Policy::new());
    let first = book(&worker, vec![order(1, 10), order(2, 0), order(3, 30)], "first").await;
    assert!(matches!(first[1], Err(AppError::NoStock)), "{first:?}");
    assert_eq!(booked(first), [Some((10, 1)), None, Some((30, 1))]);
    // The failed item and the new one run. The others are replayed, at their places.
    let second = book(&worker, vec![order(4, 40), order(1, 10), order(2, 20), order(3, 30)], "second").await;
    assert_eq!(booked(second), [Some((40, 2)), Some((10, 1)), Some((20, 2)), Some((30, 1))]);
    assert_runs(2);
}

#[tokio::test]
async fn the_body_does_not_run_without_a_free_key_or_an_item() {
    let worker = World::memory().worker("a", Policy::new());
    book(&worker, vec![order(1, 10)], "").await;
    assert_eq!(booked(book(&worker, vec![order(1, 10), order(1, 10)], "").await), [Some((10, 1)); 2]);
    assert!(book(&worker, Vec::new(), "").await.is_empty());
    assert_runs(1);
}

#[tokio::test]
async fn each_item_has_a_tenant_and_a_fingerprint_of_its_own() {
    let worker = World::memory().worker("a", Policy::new());
    let answers = book(&worker, vec![order(1, 10), Order { customer: "bob", ..order(1, 11) }, order(1, 12)], "").await;
    assert!(matches!(answers[2], Err(AppError::Idempotent(Rejection::Mismatch))), "{answers:?}");
    assert_eq!(booked(answers)[..2], [Some((10, 1)), Some((11, 1))]);
    assert_runs(1);
}

#[tokio::test]
async fn an_item_in_flight_is_rejected_and_the_others_run() {
    #[idempotent(batch = id in ids, key = id, scope = "held", with = worker.executor, message = "wait")]
    async fn held(worker: Worker, ids: Vec<u32>) -> Vec<Result<u32, AppError>> {
        let run = ran();
        if run == 1 {
            worker.clock.sleep_until(worker.clock.now() + secs(1)).await;
        }
        ids.iter().map(|_| Ok(run)).collect()
    }
    let world = World::memory();
    let worker = world.worker("a", Policy::new());
    let (first, second) = tokio::join!(biased; held(worker.clone(), vec![1]), async {
        let second = held(worker.clone(), vec![1, 2]).await;
        world.clock.advance(secs(1)).await;
        second
    });
    assert_eq!(first[0].as_ref().unwrap(), &1);
    let Err(AppError::Idempotent(Rejection::InFlight { message: Some(message), .. })) = &second[0] else {
        panic!("{second:?}")
    };
    assert_eq!((message.to_string().as_str(), second[1].as_ref().unwrap()), ("wait", &2));
    assert_runs(2);
}

#[tokio::test]
async fn rules_and_rejections_apply_to_each_item() {
    #[idempotent(
        batch = id in ids, key = id, scope = "ruled", with = executor,
        failed_if = |value| *value == 0, permanent = |error: &&'static str| *error == "never", reject = |rejection| Err(name(&rejection))
    )]
    async fn ruled(executor: &Executor, ids: Vec<u32>) -> Vec<Result<u32, &'static str>> {
        ran();
        ids.into_iter().map(|id| if id == 9 { Err("never") } else { Ok(id) }).collect()
    }
    fn name(rejection: &Rejection) -> &'static str {
        if matches!(rejection, Rejection::Failed { .. }) { "failed before" } else { "other" }
    }
    let worker = World::memory().worker("a", Policy::new());
    assert_eq!(ruled(&worker.executor, vec![0, 1, 9]).await, [Ok(0), Ok(1), Err("never")]);
    assert_eq!(ruled(&worker.executor, vec![0, 1, 9]).await, [Ok(0), Ok(1), Err("failed before")]);
    assert_runs(2);
    assert!(worker.executor.scope(async { 1 }).await == 1);
}

#[tokio::test]
async fn without_an_executor_each_item_is_rejected() {
    #[idempotent(batch = id in ids, key = id, scope = "alone")]
    async fn alone(ids: Vec<u32>) -> Vec<Result<(), AppError>> {
        ran();
        ids.iter().map(|_| Ok(())).collect()
    }
    let answers = alone(vec![1, 2]).await;
    assert_eq!(answers.len(), 2);
    assert!(answers.iter().all(|answer| matches!(answer, Err(AppError::Idempotent(Rejection::NoExecutor { .. })))));
    assert_runs(0);
}

#[tokio::test]
async fn a_wrong_number_of_answers_rejects_all_items_and_frees_their_keys() {
    #[idempotent(batch = id in ids, key = id, scope = "short", with = executor)]
    async fn short(executor: &Executor, ids: Vec<u32>) -> Vec<Result<(), AppError>> {
        let run = ran();
        ids.iter().skip(usize::from(run == 1)).map(|_| Ok(())).collect()
    }
    let worker = World::memory().worker("a", Policy::new());
    let answers = short(&worker.executor, vec![1, 2]).await;
    let wrong =
        |answer: &_| matches!(answer, Err(AppError::Idempotent(Rejection::BatchAnswers { given: 2, answered: 1 })));
    assert!(answers.iter().all(wrong), "{answers:?}");
    assert!(short(&worker.executor, vec![1, 2]).await.iter().all(Result::is_ok));
    assert_runs(2);
}

struct Ledger(Executor);

#[idempotent(scope = "ledger", with = self.0, retain = "1d")]
impl Ledger {
    #[idempotent(batch = entry in entries, key = (entry, "credit"))]
    async fn credit(&self, entries: Vec<String>) -> Vec<Result<usize, AppError>> {
        ran();
        entries.into_iter().map(|entry| Ok(entry.len())).collect()
    }
}

#[tokio::test]
async fn a_method_of_an_annotated_block_can_be_a_batch() {
    let ledger = Ledger(World::memory().worker("a", Policy::new()).executor);
    for _ in 0..2 {
        let answers = ledger.credit(vec!["a".to_owned(), "bb".to_owned()]).await;
        assert_eq!(answers.into_iter().map(Result::unwrap).collect::<Vec<_>>(), [1, 2]);
    }
    assert_runs(1);
}
