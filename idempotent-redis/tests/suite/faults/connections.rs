//! Connections of an idle runtime, and a server that accepts no more connections.
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use idempotent_core::Store;
use idempotent_harness::servers::RedisServer;
use idempotent_redis::RedisStore;
use tokio::net::TcpStream;

use crate::support::ask_number;

/// The runtime that opened the connection exists, but nothing drives it.
#[test]
fn a_call_ends_in_time_even_if_the_connections_runtime_is_idle() {
    let server = RedisServer::start();
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (first, second) = (runtime(), runtime());
    let store = first.block_on(RedisStore::builder(server.url()).cache(None).connect()).unwrap();
    let ended = second.block_on(async {
        tokio::time::timeout(Duration::from_secs(20), store.claim(&ask_number(1, 1))).await.is_ok()
    });
    assert!(ended, "no answer and no error in ten times the response timeout");
    drop(first);
}

/// A temporary refusal must not end the retries of a completion: the next delivery would run the handler again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_succeeded_while_connections_were_refused_is_not_repeated() {
    use idempotent_core::{Call, DefaultReply, Executor, Handler, Identity, Json, Policy, Rejection, Scene};
    let server = Arc::new(RedisServer::builder().arg("--maxclients").arg("8").start());
    let store = RedisStore::builder(server.url()).cache(None).connect().await.unwrap();
    let executor = Executor::new(store);
    let runs = Arc::new(AtomicUsize::new(0));
    let mut told = Vec::new();
    for _ in 0..2 {
        let (server, runs) = (server.clone(), runs.clone());
        let handler = Handler::<DefaultReply, Json, _, _>::new(move || async move {
            if runs.fetch_add(1, Ordering::SeqCst) == 0 {
                // Other clients occupy the server for half a second, and the store's connection breaks.
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
        // The next delivery comes after the lease.
        tokio::time::sleep(Duration::from_secs(8)).await;
    }
    assert_eq!(runs.load(Ordering::SeqCst), 1, "for half a second the server took no connection: {told:#?}");
}
