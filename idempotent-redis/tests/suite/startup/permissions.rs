//! The exact permissions of a user.
use std::time::Duration;

use idempotent_core::StoreErrorKind::Denied;
use idempotent_core::store::{Health, Severity};
use idempotent_core::{
    Claim, ClaimHandle, Identity, Key, KeyFilter, PageLimits, Release, ReleaseKind, Scene, Settled, Store, StoreError,
};
use idempotent_harness::servers::{RedisServer, Value};
use idempotent_redis::RedisStore;

use crate::startup::{allow, assert_only_probes_were_refused, claim, cycle, find, printed, quick, said};
use crate::support::{ask_for, done, key};

fn worker(server: &RedisServer) -> String {
    format!("redis://worker:hunter2@{}", server.address())
}

async fn rule(server: &RedisServer) -> String {
    allow(server, "worker", "");
    printed(&said(RedisStore::connect(worker(server)).await, Denied, &["the user `worker` lacks `+eval"]))
}

/// Uses every operation of a store.
async fn everything(store: &RedisStore, server: &RedisServer) -> Result<(), StoreError> {
    cycle(store, "cycle").await?;
    let held = claim(store, "steps").await?;
    assert_eq!(store.renew(&held, Duration::from_secs(60)).await?, Settled::Done);
    let watching = tokio::spawn(store.capabilities().watch.unwrap().watch(&key("steps")));
    let asked = || matches!(server.command(&["GETRANGE", key("steps").as_str(), "37", "37"]), Value::Bytes(flags) if flags.first() >= Some(&4));
    while !asked() {
        tokio::task::yield_now().await;
    }
    let error = "no".into();
    let release =
        Release { kind: ReleaseKind::Delete, delay: Duration::ZERO, retention: Duration::from_secs(1), error };
    assert_eq!(store.release(&held, &release).await?, Settled::Done);
    watching.await.unwrap();
    let record = store.peek(&key("cycle")).await?.unwrap();
    let page = store.capabilities().search.unwrap().search(&KeyFilter::all(), None, PageLimits::default()).await?;
    assert_eq!(page.entries.len(), 1);
    store.capabilities().purge.unwrap().purge(10).await?;
    let admin = store.capabilities().admin.unwrap();
    let forgotten = admin.forget(&key("cycle"), record.fencing, false, Duration::from_secs(1)).await?;
    assert_eq!(forgotten, Settled::Done);
    Ok(())
}

async fn claimed(store: &RedisStore, namespace: &str) -> Key {
    let key = Identity::new(Scene::Mq, "patterns", "a").key(namespace).unwrap();
    assert!(matches!(store.claim(&ask_for(key.clone(), 7)).await.unwrap(), Claim::Acquired(_)), "{namespace}");
    key
}

/// Another namespace would match the first one as a pattern.
#[tokio::test]
async fn a_namespace_with_pattern_characters_lists_and_purges_no_other_namespace() {
    for (namespace, other) in [("a*", "ab"), ("[ab]", "a"), ("a?", "ab"), ("*", "shop")] {
        let server = RedisServer::start();
        let all = quick(server.url()).connect().await.unwrap();
        let theirs = claimed(&all, other).await;
        allow(&server, "worker", "");
        let builder = || quick(worker(&server)).namespace(namespace);
        allow(&server, "worker", &printed(&said(builder().connect().await, Denied, &[])));
        let store = builder().connect().await.unwrap();
        let own = claimed(&store, namespace).await;
        let page =
            store.capabilities().search.unwrap().search(&KeyFilter::all(), None, PageLimits::default()).await.unwrap();
        let listed: Vec<_> = page.entries.iter().map(|entry| entry.key.as_str()).collect();
        assert_eq!(listed, [own.as_str()], "{namespace}");
        assert_eq!(store.peek(&theirs).await.unwrap_err().kind(), Denied, "{namespace}");
        store.capabilities().purge.unwrap().purge(100).await.unwrap();
        assert!(all.peek(&theirs).await.unwrap().is_some(), "{namespace}");
    }
}

#[tokio::test]
async fn the_printed_rule_permits_every_operation() {
    let server = RedisServer::start();
    let rule = rule(&server).await;
    allow(&server, "worker", &rule);
    server.command(&["ACL", "LOG", "RESET"]);
    let store = quick(worker(&server)).connect().await.unwrap();
    everything(&store, &server).await.unwrap();
    let checkup = store.check().await.unwrap();
    assert_eq!(find(&checkup, "rights").severity(), Severity::Ok, "{checkup}");
    assert_only_probes_were_refused(&server);
}

#[tokio::test]
async fn each_missing_permission_is_named() {
    let server = RedisServer::start();
    let whole = rule(&server).await;
    for missing in whole.split(' ') {
        let rest: Vec<_> = whole.split(' ').filter(|word| *word != missing).collect();
        allow(&server, "worker", &rest.join(" "));
        let lacks = format!("the user `worker` lacks `{missing}`");
        let grant = format!("ACL SETUSER worker {missing}");
        match quick(worker(&server)).connect().await {
            Err(error) => {
                let text = error.to_string();
                // Without INFO, the store does not know whether the server evicts records.
                let evicts = missing == "+info" && text.contains("whether the server evicts records is unknown");
                assert!(evicts || text.contains(&lacks) && text.contains(&grant), "{missing}: {text}");
            }
            Ok(store) => {
                let checkup = store.check().await.unwrap();
                let rights = find(&checkup, "rights");
                assert_eq!(rights.severity(), Severity::Warn, "{missing}: {checkup}");
                assert!(rights.text().contains(&lacks) && rights.text().contains(&grant), "{missing}: {checkup}");
                cycle(&store, &missing.replace('+', "without ")).await.unwrap();
            }
        }
    }
}

#[tokio::test]
async fn a_permission_revoked_at_run_time_is_named_by_the_call() {
    let server = RedisServer::start();
    let whole = rule(&server).await;
    allow(&server, "worker", &whole);
    let store = quick(worker(&server)).connect().await.unwrap();
    // Without the terms, the completion is a script on each server.
    let held = ClaimHandle { terms: None, ..claim(&store, "a").await.unwrap() };
    for missing in ["+set", "+evalsha", "~idempotent:*"] {
        let rest: Vec<_> = whole.split(' ').filter(|word| *word != missing).collect();
        allow(&server, "worker", &rest.join(" "));
        let refused = store.complete(&held, &done(None)).await;
        said(refused, Denied, &["~NAMESPACE:* &idempotent:* +del +eval +evalsha", "+set"]);
    }
    allow(&server, "worker", &whole);
    assert_eq!(store.complete(&held, &done(None)).await.unwrap(), Settled::Done);
}
