//! Connections whose runtime stands still, and a server that takes no more of them.
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use idempotent_core::Store;
use idempotent_redis::RedisStore;
use idempotent_testkit::servers::RedisServer;
use tokio::net::TcpStream;

use crate::support::ask_number;

/// The runtime that it was opened on lives, and nobody drives it.
#[test]
fn a_call_ends_in_its_time_whichever_runtime_the_connection_was_made_on() {
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
