//! A cluster whose slots move and whose nodes die.
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use idempotent_core::{Claim, ClaimRequest, Settled, State, StateKind, Store, StoreErrorKind, StoreNode};
use idempotent_harness::servers::{RedisCluster, RedisServer};

use crate::topology::{ask, blocking, claim, done, granted, held, key, state, until, without_cache};

#[tokio::test]
async fn a_batch_is_sent_to_the_owners_of_its_keys_without_redirections() {
    let cluster = RedisCluster::start(3);
    let store = without_cache(cluster.url()).await;
    let before = sizes(&cluster);
    let names = ["orders", "a_b_", "größe", "a:b/c<d>", ""];
    let requests: Vec<_> =
        (0..400_u16).map(|n| ask(key(names[usize::from(n) % 5], n.into()), u128::from(n) + 1)).collect();
    let batch = store.capabilities().batch.unwrap();
    let claims = batch.claim_all(&requests).await;
    for (request, claim) in requests.iter().zip(claims) {
        granted(claim);
        let record = store.peek(&request.key).await.unwrap().unwrap();
        // Replies have the order of the requests: each record has its own owner.
        assert!(matches!(record.state, State::Consuming { owner, .. } if owner == request.owner), "{record:?}");
    }
    let all: Vec<_> = requests.iter().map(|request| (held(request), done())).collect();
    assert!(batch.complete_all(&all).await.into_iter().all(|said| said.unwrap() == Settled::Done));
    assert_eq!(store.counts().redirections, 0);
    let all: Vec<i64> = sizes(&cluster).into_iter().zip(before).map(|(after, before)| after - before).collect();
    assert!(all.iter().all(|keys| *keys > 0) && all.iter().sum::<i64>() == 400, "{all:?}");

    // Calls of concurrent tasks are batched, too.
    let tasks: Vec<_> = (1_000..1_200_u128)
        .map(|n| {
            let store = store.clone();
            tokio::spawn(async move { granted(store.claim(&ask(key("t", n), n)).await) })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(store.counts().redirections, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_migration_causes_no_errors_and_moves_the_leases() {
    let cluster = Arc::new(RedisCluster::start(3));
    let store = without_cache(cluster.url()).await;
    // Names with equal numbers share a slot.
    let lease = ask(key("lease", 7), 1);
    let slot = cluster.slot_of(lease.key.as_str());
    let (from, to) = (cluster.owner_of(slot), (cluster.owner_of(slot) + 1) % 3);
    let grant = granted(store.claim(&lease).await);

    let (stop, runs) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let load: Vec<_> = (0..4)
        .map(|worker| {
            let (store, stop, runs) = (store.clone(), stop.clone(), runs.clone());
            tokio::spawn(async move {
                for round in 0.. {
                    let request = ask(key(&format!("w{worker}-{round}"), 7), 1);
                    granted(store.claim(&request).await);
                    assert_eq!(store.complete(&held(&request), &done()).await.unwrap(), Settled::Done);
                    assert!(matches!(store.claim(&request).await.unwrap(), Claim::Consumed(_)));
                    runs.fetch_add(1, Ordering::SeqCst);
                    if stop.load(Ordering::SeqCst) {
                        return;
                    }
                }
            })
        })
        .collect();
    let more = async |what: &str| {
        let seen = runs.load(Ordering::SeqCst);
        until(what, async || runs.load(Ordering::SeqCst) > seen + 40).await;
    };
    more("runs before the move").await;
    let moving = cluster.clone();
    blocking(move || moving.begin_migration(slot, from, to)).await;
    more("runs while new keys are at the other node").await;
    assert!(store.counts().redirections > 0, "no ASK");
    let moving = cluster.clone();
    blocking(move || while moving.move_keys(slot, from, to, 50) > 0 {}).await;
    more("runs while all keys are at the other node").await;
    let (moving, before) = (cluster.clone(), store.counts().redirections);
    blocking(move || {
        // Moves the keys that the old node has received since.
        while moving.move_keys(slot, from, to, 50) > 0 {}
        moving.end_migration(slot, from, to);
    })
    .await;
    more("runs after the move").await;
    stop.store(true, Ordering::SeqCst);
    for worker in load {
        worker.await.unwrap();
    }
    assert!(store.counts().redirections > before, "no MOVED");
    let held = idempotent_core::ClaimHandle { fencing: Some(grant.fencing), ..held(&lease) };
    assert_eq!(store.renew(&held, lease.lease).await.unwrap(), Settled::Done);
    assert_eq!(store.complete(&held, &done()).await.unwrap(), Settled::Done);
    assert_eq!(cluster.owner_of(slot), to);
    println!("{} runs while the slot moved, {} redirections", runs.load(Ordering::SeqCst), store.counts().redirections);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claims_wait_for_the_replica_of_a_killed_node_and_keep_its_records() {
    let cluster = Arc::new(RedisServer::builder().start_cluster(3, 1));
    let store = without_cache(cluster.url()).await;
    let requests: Vec<_> = (0..60).map(|number| ask(key("a", number), 1)).collect();
    for claim in store.capabilities().batch.unwrap().claim_all(&requests).await {
        granted(claim);
    }
    // All replicas are up to date.
    for node in cluster.nodes() {
        let (at, of) = (offset(node), cluster.nodes());
        until("replicas are in step", async || of.iter().filter(|other| offset(other) >= at).count() > 1).await;
    }
    let killed = cluster.clone();
    let promoted = tokio::spawn(async move { blocking(move || killed.fail_over(0)).await });
    // In flight while the node dies.
    let during: Vec<_> = (100..160).map(|number| ask(key("a", number), 1)).collect();
    let claims = store.capabilities().batch.unwrap().claim_all(&during).await;
    for (request, said) in during.iter().zip(claims) {
        match said {
            // The call was in flight to the node that died.
            Err(error) if error.kind() == StoreErrorKind::Ambiguous => granted(claim(&store, request).await),
            said => granted(said),
        };
    }
    promoted.await.unwrap();
    let done: Vec<_> = requests.iter().chain(&during).map(|request| (held(request), done())).collect();
    for said in store.capabilities().batch.unwrap().complete_all(&done).await {
        assert_eq!(said.unwrap(), Settled::Done);
    }
    for request in requests.iter().chain(&during) {
        assert_eq!(state(&store, &request.key).await, StateKind::Consumed);
    }
}

#[tokio::test]
async fn an_error_names_the_node_that_failed() {
    let cluster = RedisCluster::start(3);
    let store = without_cache(cluster.url()).await;
    let nodes = store.capabilities().nodes.unwrap();
    assert_eq!(nodes.node_count(), 3);
    let failed = StoreNode::new(cluster.node(2).address());
    let requests = (0..60).map(|number| ask(key("k", number), 1));
    let (lost, healthy): (Vec<_>, Vec<_>) =
        requests.partition(|request| nodes.node_of(&request.key).as_ref() == Some(&failed));
    let fails = async || {
        let request = ClaimRequest { lease: Duration::from_secs(1), ..lost[0].clone() };
        let error = store.claim(&request).await.unwrap_err();
        assert!(matches!(error.kind(), StoreErrorKind::NotApplied | StoreErrorKind::Ambiguous), "{error}");
        assert_eq!(error.node(), Some(&failed), "{error}");
    };
    cluster.node(2).pause();
    fails().await;
    granted(claim(&store, &healthy[0]).await);
    cluster.node(2).kill();
    fails().await;
    granted(claim(&store, &healthy[1]).await);
}

/// Returns the number of keys of each node.
fn sizes(cluster: &RedisCluster) -> Vec<i64> {
    cluster.nodes().iter().map(|node| node.command(&["DBSIZE"]).integer().unwrap()).collect()
}

/// Returns the offset in the replication stream.
fn offset(server: &RedisServer) -> i64 {
    server.info("master_repl_offset").trim().parse().unwrap()
}
