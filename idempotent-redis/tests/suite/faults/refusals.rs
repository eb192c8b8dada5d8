//! Temporary refusals by a server, outside and inside of scripts.
use idempotent_core::{Claim, Store, StoreErrorKind};
use idempotent_harness::servers::{RedisReplicas, RedisServer};
use idempotent_redis::RedisStore;
use tokio::net::TcpStream;

use crate::support::ask_number;
use crate::support::fake_server::Fake;

/// The script runs and its write is rejected, so the store must look for another primary.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_demoted_primary_is_left_even_with_scripts_without_flags() {
    let group = RedisReplicas::start(1);
    let (old, new) = (group.primary(), group.replica());
    let sentinel = Fake::sentinel(old.port(), 1).await;
    let url = format!("redis+sentinel://127.0.0.1:{}/main", sentinel.port);
    for plain in [false, true] {
        let builder = RedisStore::builder(&url).cache(None);
        let store = if plain { builder.plain_scripts() } else { builder }.connect().await.unwrap();
        new.command(&["REPLICAOF", "NO", "ONE"]);
        old.command(&["REPLICAOF", "127.0.0.1", &new.port().to_string()]);
        sentinel.names(new.port(), 2);
        let claim = store.claim(&ask_number(u128::from(plain), 1)).await;
        assert!(matches!(claim, Ok(Claim::Acquired(_))), "plain: {plain}: {claim:?}");
        old.command(&["REPLICAOF", "NO", "ONE"]);
        new.command(&["REPLICAOF", "127.0.0.1", &old.port().to_string()]);
        sentinel.names(old.port(), 3);
    }
}

/// Redis 6.2 puts the position in front of the error of a command inside a script (`luaPushError`).
#[tokio::test]
async fn a_refusal_inside_a_script_of_redis_6_2_is_not_applied() {
    let server = RedisServer::start();
    for words in [
        "NOREPLICAS Not enough good replicas to write.",
        "READONLY You can't write against a read only replica.",
        "MISCONF Redis is configured to save RDB snapshots, but it is currently not able to persist on disk.",
        "OOM command not allowed when used memory > 'maxmemory'.",
    ] {
        let says = move |text: &str| {
            if text.contains("-- Claims. ARGV") {
                format!("return {{1, 1, \"E@user_script: 67: -{words}\"}}")
            } else {
                text.to_owned()
            }
        };
        let store =
            RedisStore::builder(server.url()).cache(None).plain_scripts().edit_scripts(says).connect().await.unwrap();
        let error = store.claim(&ask_number(1, 1)).await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::NotApplied, "{error}");
    }
}

#[tokio::test]
async fn a_server_with_too_many_clients_is_retryable() {
    let server = RedisServer::builder().arg("--maxclients").arg("8").start();
    let mut others = Vec::new();
    // The server may count a client for a moment longer than it is there.
    let mut refused = None;
    while refused.is_none() {
        assert!(others.len() < 100, "the server takes more clients than it may");
        others.push(TcpStream::connect(server.address()).await.unwrap());
        refused = RedisStore::connect(server.url()).await.err();
    }
    let error = refused.unwrap();
    assert_eq!(error.kind(), StoreErrorKind::NotApplied, "{error}");
}
