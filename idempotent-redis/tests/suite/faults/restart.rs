//! A server that is killed and restarted with its append-only file.
use idempotent_core::{Claim, ReleaseKind, Settled, Store};
use idempotent_harness::servers::RedisServer;

use crate::support::runs::{raw, record};
use crate::support::{ask, consume, done, hold, key, open_without_cache, put_down, until};

#[tokio::test]
async fn a_restart_with_an_append_only_file_keeps_every_record_and_its_expiry() {
    let server = RedisServer::builder().aof().start();
    let store = open_without_cache(&server).await;
    let held = hold(&store, "held", 1).await;
    consume(&store, "consumed", Some(b"\0result")).await;
    for (part, verdict) in
        [("vacant", ReleaseKind::Vacate), ("failed", ReleaseKind::MarkFailed), ("dead", ReleaseKind::MarkDead)]
    {
        let held = hold(&store, part, 1).await;
        assert_eq!(store.release(&held, &put_down(verdict)).await.unwrap(), Settled::Done);
    }
    let parts = ["held", "consumed", "vacant", "failed", "dead"];
    let look = async || {
        let mut all = Vec::new();
        for part in parts {
            let ends = server.command(&["PEXPIRETIME", key(part).as_str()]).integer();
            all.push((raw(&server, part), ends, record(&store, part).await));
        }
        all
    };
    let before = look().await;
    server.kill();
    server.restart();
    until("the store is connected again", async || store.peek(&key("held")).await.is_ok()).await;
    assert_eq!(look().await, before);
    assert!(matches!(store.claim(&ask("held", 2)).await.unwrap(), Claim::InFlight(_)));
    assert_eq!(store.complete(&held, &done(None)).await.unwrap(), Settled::Done, "by the number it was granted");
}
