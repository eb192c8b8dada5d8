//! `crash_at` and `crash_everywhere`.
use std::cell::{Cell, RefCell};
use std::collections::HashSet;

use futures_util::FutureExt;
use idempotent::{Executor, Lease, MemoryStore, Outcome, Rejection, idempotent};
use idempotent_testkit::{MockExecutor, crash_at, crash_everywhere};
use tokio::task::yield_now;

use super::{ONE, text_of};

/// A far side: what it was asked to do, and by which step keys.
#[derive(Debug, Default)]
struct Bank {
    asked: Cell<u32>,
    charged: RefCell<HashSet<String>>,
}

/// A call of an external system that takes no idempotency key and executes each call.
#[idempotent(key = order, scope = "careless", scene = mq)]
async fn careless(bank: &Bank, order: &str) -> Result<u32, Rejection> {
    bank.asked.update(|n| n + 1);
    yield_now().await;
    Ok(Lease::current().unwrap().attempt())
}

/// A far side that is idempotent by a key of its own.
#[idempotent(key = order, scope = "careful", scene = mq)]
async fn careful(bank: &Bank, order: &str) -> Result<u32, Rejection> {
    let lease = Lease::current().unwrap();
    bank.asked.update(|n| n + 1);
    bank.charged.borrow_mut().insert(lease.step_key("charge"));
    yield_now().await;
    Ok(lease.attempt())
}

#[tokio::test]
async fn a_run_is_dropped_at_the_await_asked_for_and_ends_if_it_has_fewer() {
    let reached = Cell::new(0);
    let work = async || {
        for _ in 0..3 {
            reached.update(|n| n + 1);
            yield_now().await;
        }
        "done"
    };
    for (n, ended, begun) in [(0, None, 0), (1, None, 1), (3, None, 3), (4, Some("done"), 3), (9, Some("done"), 3)] {
        reached.set(0);
        assert_eq!((crash_at(n, work()).await, reached.get()), (ended, begun), "{n}");
    }
}

/// The difference to a killed process: what is dropped may say goodbye.
#[tokio::test]
async fn a_dropped_run_is_cancelled_by_the_executor_and_its_key_left_to_the_lease() {
    let (mock, bank) = (MockExecutor::new(), Bank::default());
    assert!(mock.scope(crash_at(1, careless(&bank, "o-17"))).await.is_none());
    assert_eq!(mock.outcomes(), [Outcome::Abandoned]);
    assert!(matches!(mock.scope(careless(&bank, "o-17")).await, Err(Rejection::InFlight { .. })));
    mock.clock().advance(std::time::Duration::from_secs(30)).await;
    assert_eq!(mock.scope(careless(&bank, "o-17")).await.unwrap(), 2);
    assert!(mock.log().last().unwrap().took_over);
}

/// Each gap between claim, effect, answer and record, once; and the count of attempts shows that the dead worker
/// could not give its claim back.
#[tokio::test]
async fn every_gap_is_a_crash_point_and_the_dead_say_nothing() {
    let crashes = crash_everywhere(Bank::default, async |bank| careless(bank, "o-17").await).await;
    let found: Vec<_> = crashes
        .iter()
        .map(|crash| {
            let redelivered = &crash.redelivered;
            let answer = *redelivered.answer.as_ref().unwrap();
            (crash.at, crash.held, redelivered.outcome.clone().unwrap(), answer, crash.state.asked.get())
        })
        .collect();
    assert_eq!(
        found,
        [
            (1, false, Outcome::Ran, 1, 1),     // before the claim was sent
            (2, true, Outcome::Ran, 2, 1),      // granted, and nobody heard
            (3, true, Outcome::Ran, 2, 2),      // the effect, then death
            (4, true, Outcome::Ran, 2, 2),      // before the record was sent
            (5, true, Outcome::Replayed, 1, 1), // recorded, and nobody heard
        ]
    );
    assert_eq!(crashes[0].to_string(), "died at await 1, before it held its key; the redelivery came to `ran`");
    assert_eq!(crashes[4].to_string(), "died at await 5, holding its key; the redelivery came to `replayed`");
}

#[tokio::test]
async fn an_effect_that_is_not_idempotent_is_caught_and_one_that_is_passes() {
    let careless = crash_everywhere(Bank::default, async |bank| careless(bank, "o-17").await).await;
    let twice: Vec<_> = careless.iter().filter(|crash| crash.state.asked.get() == 2).map(|crash| crash.at).collect();
    assert_eq!(twice, [3, 4], "a crash between effect and record runs it again");

    let careful = crash_everywhere(Bank::default, async |bank| careful(bank, "o-17").await).await;
    assert_eq!(careful.len(), 5);
    assert!(careful.iter().any(|crash| crash.state.asked.get() == 2), "it was asked twice, and");
    for crash in careful {
        assert_eq!(crash.state.charged.borrow().len(), 1, "{crash}");
    }
}

/// Both leases are outlived; what the inner run recorded is replayed to the outer one.
#[tokio::test]
async fn runs_inside_runs_are_crashed_at_each_of_their_gaps() {
    #[idempotent(key = order, scope = "order", scene = mq, lease = "10s")]
    async fn outer(bank: &Bank, order: &str) -> Result<u32, Rejection> {
        careful(bank, order).await?;
        yield_now().await;
        Ok(Lease::current().unwrap().attempt())
    }
    let crashes = crash_everywhere(Bank::default, async |bank| outer(bank, "o-17").await).await;
    assert_eq!(crashes.len(), 10, "two claims, two awaits, two records");
    for crash in &crashes {
        assert!(crash.redelivered.answer.is_ok(), "{crash}");
        assert_eq!(crash.state.charged.borrow().len(), 1, "{crash}");
    }
    let asked: Vec<_> = crashes.iter().map(|crash| crash.state.asked.get()).collect();
    assert_eq!(asked, [1, 1, 1, 1, 2, 2, 1, 1, 1, 1], "again only between its effect and its record");
}

#[tokio::test]
async fn the_lease_of_the_attribute_is_outlived() {
    #[idempotent(key = const { ONE }, scope = "long", lease = "3h", max_run = "6h")]
    async fn long() -> Result<(), Rejection> {
        Ok(())
    }
    for crash in crash_everywhere(|| (), async |()| long().await).await {
        assert!(crash.redelivered.answer.is_ok(), "{crash}");
    }
}

#[tokio::test]
async fn a_handler_with_an_executor_that_cannot_be_cut_off_is_reported() {
    #[idempotent(key = const { ONE }, scope = "own", with = executor)]
    async fn own(executor: &Executor) -> Result<(), Rejection> {
        Ok(())
    }
    let not_annotated = crash_everywhere(|| (), async |()| yield_now().await);
    let elsewhere = crash_everywhere(|| Executor::new(MemoryStore::new()), async |executor| own(executor).await);
    for text in [caught(not_annotated).await, caught(elsewhere).await] {
        assert!(text.contains("did not ask the store of the executor in scope: is it annotated?"), "{text}");
        assert!(text.contains("let it take `&Executor`, and give it `&Executor::current().unwrap()` inside"), "{text}");
        assert!(text.starts_with(concat!("crash_everywhere at ", file!(), ":")), "the user's line: {text}");
    }
    let in_scope = crash_everywhere(|| (), async |()| own(&Executor::current().unwrap()).await).await;
    assert_eq!(in_scope.len(), 4);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[should_panic = "VirtualClock needs a current_thread runtime"]
async fn crashes_on_several_threads_are_refused() {
    crash_everywhere(Bank::default, async |bank| careless(bank, "o-17").await).await;
}

#[tokio::test]
async fn an_endless_handler_is_reported() {
    #[idempotent(key = const { ONE }, scope = "endless")]
    async fn endless(deliveries: &Cell<u32>) -> Result<(), Rejection> {
        // The first delivery never ends; the one after the crash does.
        while deliveries.get() == 0 {
            yield_now().await;
        }
        Ok(())
    }
    struct Delivered<'a>(&'a Cell<u32>);
    impl Drop for Delivered<'_> {
        fn drop(&mut self) {
            self.0.update(|n| n + 1);
        }
    }
    let run = crash_everywhere(Cell::default, async |deliveries: &Cell<u32>| {
        let _delivered = Delivered(deliveries);
        endless(deliveries).await
    });
    let text = caught(run).await;
    assert!(text.contains("no run ended unharmed within 500 awaits"), "{text}");
}

/// The first delivery is like that of a loop that drops each delivery at each await.
#[tokio::test]
async fn a_redelivery_that_polls_in_a_loop_is_reported() {
    #[idempotent(key = const { ONE }, scope = "loops")]
    async fn loops() -> Result<(), Rejection> {
        loop {
            yield_now().await;
        }
    }
    let text = caught(crash_everywhere(|| (), async |()| loops().await)).await;
    assert!(text.contains("the redelivery after the death at await 1 did not end within 5000 awaits"), "{text}");
}

#[tokio::test]
async fn a_failing_redelivery_is_reported_with_its_remedy() {
    #[idempotent(key = const { ONE }, scope = "fails", scene = mq)]
    async fn fails(bank: &Bank) -> anyhow::Result<()> {
        bank.asked.update(|n| n + 1);
        anyhow::ensure!(bank.asked.get() < 2, "no stock");
        yield_now().await;
        Ok(())
    }
    let crashes = crash_everywhere(Bank::default, async |bank| fails(bank).await).await;
    assert_eq!(
        crashes[2].to_string(),
        "died at await 3, holding its key; the redelivery came to `released`; the handler failed: see \
         `crash.redelivered.answer`, and provide the data that it needs"
    );
}

async fn caught<F: Future>(future: F) -> String {
    match std::panic::AssertUnwindSafe(future).catch_unwind().await {
        Ok(_) => panic!("it was to panic"),
        Err(panic) => text_of(panic),
    }
}
