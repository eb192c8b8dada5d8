//! The cache, listings, runtimes, clocks and a full server.
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use idempotent_core::{
    Claim, ClaimRequest, Completion, Fencing, Held, Key, Micros, OwnerToken, Record, Settled, State, Store, protocol,
};
use idempotent_redis::{CacheOptions, RedisStore};
use idempotent_testkit::servers::RedisServer;
use tokio::net::TcpStream;

use crate::review::ask;

#[tokio::test]
async fn an_age_without_a_limit_is_one() {
    let server = RedisServer::start();
    let mut options = CacheOptions::default();
    options.max_age = Duration::MAX;
    let store = RedisStore::builder(server.url()).cache(options).connect().await.unwrap();
    let request = ask(1, 1);
    let Claim::Acquired(grant) = store.claim(&request).await.unwrap() else { panic!("not granted") };
    let held = Held { key: request.key.clone(), owner: request.owner, fencing: Some(grant.fencing) };
    let done = Completion { value: None, retain: Duration::MAX };
    assert_eq!(store.complete(&held, &done).await.unwrap(), Settled::Done);
}

// ---- browse

#[tokio::test]
async fn a_listing_is_not_refused_for_what_lies_in_another_namespace() {
    let server = RedisServer::start();
    let all = RedisStore::builder(server.url()).cache(None).connect().await.unwrap();
    let theirs = ClaimRequest { key: Key::from_parts("other:mq:a", 7), ..ask(7, 1) };
    assert!(matches!(all.claim(&theirs).await, Ok(Claim::Acquired(_))));
    let rule = "ACL SETUSER worker on >secret resetchannels &idempotent:* ~idempotent:* +@connection +del +eval +evalsha \
                +get +getrange +info +pexpiretime +pttl +publish +scan +set +setrange +subscribe +time";
    server.cli(&rule.split_whitespace().collect::<Vec<_>>());
    let url = server.url().replace("redis://", "redis://worker:secret@");
    let store = RedisStore::builder(url).cache(None).connect().await.unwrap();
    assert!(matches!(store.claim(&ask(1, 1)).await, Ok(Claim::Acquired(_))));
    let page = store.abilities().browse.unwrap().browse(None, 100).await;
    assert_eq!(page.map(|page| page.entries.len()).map_err(|error| error.to_string()), Ok(1));
}

// ---- runtimes

/// The runtime that it was opened on lives, and nobody drives it.
#[test]
fn a_call_ends_in_its_time_whichever_runtime_the_connection_was_made_on() {
    let server = RedisServer::start();
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (first, second) = (runtime(), runtime());
    let store = first.block_on(RedisStore::builder(server.url()).cache(None).connect()).unwrap();
    let ended =
        second.block_on(async { tokio::time::timeout(Duration::from_secs(20), store.claim(&ask(1, 1))).await.is_ok() });
    assert!(ended, "no answer and no error in ten times the response timeout");
    drop(first);
}

// ---- clock

/// The end is never shortened, and the write is now: more than 31 days apart.
#[test]
fn a_lease_renewed_behind_a_clock_that_was_set_back_by_months_can_still_be_completed() {
    const DAY: u64 = 24 * 3_600_000_000;
    let now = Micros(1_795_187_175_068_457);
    let record = Record {
        fencing: Fencing(now.0),
        attempt: 1,
        fingerprint: None,
        state: State::Consuming { owner: OwnerToken(1), until: Micros(now.0 + 30_000_000), taken_over: None },
        expires_at: Micros(now.0 + DAY),
        first_seen: now,
        updated_at: now,
        display: None,
    };
    let held = Held { key: ask(1, 1).key, owner: OwnerToken(1), fencing: Some(record.fencing) };
    let back = Micros(now.0 - 40 * DAY);
    let (settled, write) = protocol::renew(Some(&record), &held, Duration::from_secs(30), back);
    assert_eq!(settled, Settled::Done);
    let protocol::Write::Put(renewed) = write else { panic!("not written") };
    renewed.check().unwrap();
}

/// What is refused for a moment is not insisted on, and the next delivery runs the handler again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_succeeded_while_the_server_had_too_many_clients_is_not_run_again() {
    use idempotent_core::{Auto, Call, Executor, Handler, Identity, Json, Policy, Rejection, Scene};
    let server = Arc::new(RedisServer::builder().arg("--maxclients").arg("8").start());
    let store = RedisStore::builder(server.url()).cache(None).connect().await.unwrap();
    let executor = Executor::new(store);
    let runs = Arc::new(AtomicUsize::new(0));
    let mut told = Vec::new();
    for _ in 0..2 {
        let (server, runs) = (server.clone(), runs.clone());
        let handler = Handler::<Auto, Json, _, _>::new(move || async move {
            if runs.fetch_add(1, Ordering::SeqCst) == 0 {
                // A burst of other clients, for half a second; and our connection breaks.
                server.command(&["CLIENT", "KILL", "TYPE", "pubsub"]);
                let mut others = Vec::new();
                for _ in 0..12 {
                    others.push(TcpStream::connect(server.address()).await.unwrap());
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
                tokio::spawn(async move {
                    tokio::time::sleep(Duration::from_millis(500)).await;
                    drop(others);
                });
            }
            Ok::<u32, Rejection>(1)
        });
        let policy = Policy::new().lease(Duration::from_secs(6));
        told.push(format!(
            "{:?}",
            executor.run(Call::new(Identity::new(Scene::Mq, "a", "1")).policy(policy), handler).await
        ));
        // The next delivery, when the lease is over.
        tokio::time::sleep(Duration::from_secs(8)).await;
    }
    assert_eq!(runs.load(Ordering::SeqCst), 1, "for half a second the server took no connection: {told:#?}");
}
