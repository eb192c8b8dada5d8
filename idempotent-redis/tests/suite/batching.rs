//! Batched calls: no caller waits without a reason, and each gets its own reply.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use idempotent_core::{Claim, Settled, Store, StoreErrorKind};
use idempotent_harness::servers::RedisServer;
use idempotent_redis::RedisStore;
use tokio::task::JoinSet;

use crate::support::{ask, ask_number, calls, done, granted, hold, open_without_cache, start_without_cache, until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_calls_share_script_calls_and_each_gets_its_own_reply() {
    let (server, store) = start_without_cache().await;
    let before = calls(&server, "evalsha");
    let mut tasks = JoinSet::new();
    for task in 0..64_u128 {
        let store = store.clone();
        tasks.spawn(async move {
            let mut numbers = Vec::new();
            for round in 0..20 {
                let held = hold(&store, &format!("{task}-{round}"), task + 1).await;
                numbers.push(held.fencing.unwrap());
                assert_eq!(store.complete(&held, &done(None)).await.unwrap(), Settled::Done);
            }
            numbers
        });
    }
    let grants = tasks.join_all().await.concat().len();
    assert_eq!(grants, 64 * 20);
    let sent = calls(&server, "evalsha") - before;
    assert!(sent < 64 * 20, "{sent} script calls for {} cycles: two each are what single ones take", 64 * 20);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_caller_does_not_affect_others() {
    let (_server, store) = start_without_cache().await;
    let mut tasks = JoinSet::new();
    for task in 0..200_u128 {
        let store = store.clone();
        tasks.spawn(async move {
            let part = format!("k{task}");
            let request = ask(&part, task + 1);
            if task % 3 == 0 {
                // Cancels at any point: before sending, in flight, or after the reply.
                let patience = Duration::from_micros((task * 7 % 400) as u64);
                let _ = tokio::time::timeout(patience, store.claim(&request)).await;
            }
            // The same token gets the grant of the first attempt, whatever became of that attempt.
            let grant = granted(store.claim(&request).await.unwrap());
            assert_eq!(grant.attempt, 1, "{part}");
            grant.fencing
        });
    }
    let all = tokio::time::timeout(Duration::from_secs(60), tasks.join_all()).await.expect("all are answered");
    assert_eq!(all.len(), 200);
}

#[tokio::test]
async fn calls_queued_after_a_dropped_caller_are_sent() {
    let (server, store) = start_without_cache().await;
    hold(&store, "warm", 1).await;
    server.pause();
    // The first call is sent directly, the second in a batch, and the third waits for either.
    let racing: Vec<_> = (1..=3_u128)
        .map(|owner| {
            let store = store.clone();
            tokio::spawn(async move { store.claim(&ask(&format!("k{owner}"), owner)).await })
        })
        .collect();
    tokio::task::yield_now().await;
    let [first, second, third] = <[_; 3]>::try_from(racing).unwrap();
    first.abort();
    assert!(first.await.unwrap_err().is_cancelled());
    server.resume();
    granted(second.await.unwrap().unwrap());
    granted(third.await.unwrap().unwrap());
}

/// The first call is sent directly. A first batch takes at most what the queue holds, and then the queue is filled again.
#[tokio::test]
async fn claims_that_do_not_fit_into_the_queue_of_a_silent_server_are_refused_at_once() {
    const CLAIMS: u32 = 10_000;
    const QUEUE: usize = 4_096;
    let server = RedisServer::start();
    let builder = RedisStore::builder(server.url()).cache(None).response_timeout(Duration::from_secs(120));
    let store = builder.connect().await.unwrap();
    let held = hold(&store, "held", 1).await;
    server.pause();
    let refused = Arc::new(AtomicUsize::new(0));
    let mut tasks = JoinSet::new();
    for number in 1..=CLAIMS {
        let (store, refused) = (store.clone(), refused.clone());
        tasks.spawn(async move {
            let claim = store.claim(&ask_number(number.into(), 1)).await;
            if claim.as_ref().is_err_and(|error| error.kind() == StoreErrorKind::Busy) {
                refused.fetch_add(1, Ordering::SeqCst);
            }
            claim
        });
    }
    let surely = CLAIMS as usize - 1 - 2 * QUEUE;
    until("claims are refused", async || refused.load(Ordering::SeqCst) >= surely).await;
    // The run in progress is completed once the server answers.
    let completing = {
        let store = store.clone();
        tokio::spawn(async move { store.complete(&held, &done(None)).await })
    };
    tokio::task::yield_now().await;
    server.resume();
    assert_eq!(completing.await.unwrap().unwrap(), Settled::Done);
    for claim in tasks.join_all().await {
        match claim {
            Ok(claim) => drop(granted(claim)),
            Err(error) => assert_eq!(error.kind(), StoreErrorKind::Busy, "{error}"),
        }
    }
    assert!(refused.load(Ordering::SeqCst) < CLAIMS as usize - QUEUE, "claims within the limit were refused");
}

#[test]
fn a_runtime_that_shuts_down_does_not_affect_others() {
    let server = RedisServer::start();
    let lasting = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let store = lasting.block_on(open_without_cache(&server));
    for round in 0..20_u128 {
        let passing = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        for task in 0..20_u128 {
            let store = store.clone();
            drop(passing.spawn(async move { store.claim(&ask(&format!("p{round}-{task}"), 1 + task)).await }));
        }
        let others: Vec<_> = (0..20_u128)
            .map(|task| {
                let store = store.clone();
                lasting.spawn(async move { store.claim(&ask(&format!("l{round}-{task}"), 1 + task)).await })
            })
            .collect();
        passing.shutdown_background();
        lasting.block_on(async {
            for other in others {
                // A call in a batch of the other runtime may fail with an error and can be repeated.
                let told = tokio::time::timeout(Duration::from_secs(30), other).await.expect("an answer").unwrap();
                assert!(matches!(told, Ok(Claim::Acquired(_)) | Err(_)));
            }
            until("the store answers again", async || store.claim(&ask(&format!("again{round}"), 1)).await.is_ok())
                .await;
        });
    }
}

#[tokio::test]
async fn more_calls_than_fit_into_one_command_all_get_replies() {
    let (server, store) = start_without_cache().await;
    let requests: Vec<_> = (0..1_000).map(|number| ask(&format!("k{number}"), 1 + number)).collect();
    let before = calls(&server, "evalsha");
    let batch = idempotent_core::Batch::claim_all(&store, &requests).await;
    let numbers: HashSet<_> = batch.into_iter().map(|claim| granted(claim.unwrap()).attempt).collect();
    assert_eq!(numbers, HashSet::from([1]));
    assert!(calls(&server, "evalsha") - before <= 5, "256 keys a call, and one more where it was not known");
}

#[tokio::test]
async fn calls_of_a_batch_run_in_order_even_if_the_script_is_not_cached() {
    let (server, store) = start_without_cache().await;
    let short = idempotent_core::ClaimRequest { lease: Duration::from_secs(10), ..ask("k", 1) };
    let long = idempotent_core::ClaimRequest { lease: Duration::from_secs(3_000), ..ask("k", 1) };
    for _ in 0..2 {
        server.command(&["FLUSHDB"]);
        let grants = idempotent_core::Batch::claim_all(&store, &[short.clone(), long.clone()]).await;
        assert!(grants.into_iter().all(|claim| granted(claim.unwrap()).attempt == 1));
        let record = store.peek(&short.key).await.unwrap().unwrap();
        let idempotent_core::State::Consuming { until, .. } = record.state else { panic!("{record:?}") };
        assert_eq!(until - record.updated_at, Duration::from_secs(10), "the first one's lease, and nothing renewed it");
    }
}
