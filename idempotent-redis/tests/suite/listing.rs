//! Listings of a server that several namespaces share.
use std::time::Duration;

use idempotent_core::{Batch, Claim, ClaimHandle, ClaimRequest, Completion, Key, KeyFilter, PageLimits, Search, Store};
use idempotent_harness::servers::RedisServer;
use idempotent_redis::RedisStore;

use crate::support::ask_number;

#[tokio::test]
async fn a_listing_succeeds_without_permissions_for_other_namespaces() {
    let server = RedisServer::start();
    let all = RedisStore::builder(server.url()).cache(None).connect().await.unwrap();
    let theirs = ClaimRequest { key: Key::from_parts("other:mq:a", 7), ..ask_number(7, 1) };
    assert!(matches!(all.claim(&theirs).await, Ok(Claim::Acquired(_))));
    let rule = "ACL SETUSER worker on >secret resetchannels &idempotent:* ~idempotent:* +@connection +del +eval +evalsha \
                +get +getrange +info +pexpiretime +pttl +publish +scan +set +setrange +subscribe +time";
    server.cli(&rule.split_whitespace().collect::<Vec<_>>());
    let url = server.url().replace("redis://", "redis://worker:secret@");
    let store = RedisStore::builder(url).cache(None).connect().await.unwrap();
    assert!(matches!(store.claim(&ask_number(1, 1)).await, Ok(Claim::Acquired(_))));
    let page = store.capabilities().search.unwrap().search(&KeyFilter::all(), None, PageLimits::default()).await;
    assert_eq!(page.map(|page| page.entries.len()).map_err(|error| error.to_string()), Ok(1));
}

#[tokio::test]
async fn a_page_of_a_billion_records_has_at_most_10_000() {
    let server = RedisServer::start();
    let store = RedisStore::builder(server.url()).cache(None).connect().await.unwrap();
    let requests: Vec<_> = (0..10_500).map(|number| ask_number(number, 1)).collect();
    for some in requests.chunks(500) {
        assert!(store.claim_all(some).await.iter().all(Result::is_ok));
    }
    let search = store.capabilities().search.unwrap();
    let limits = PageLimits { keys: 1_000_000_000, examined: usize::MAX };
    let (mut after, mut listed) = (None, 0);
    loop {
        let page = search.search(&KeyFilter::all(), after, limits).await.unwrap();
        assert!(page.entries.len() <= 10_000, "{}", page.entries.len());
        listed += page.entries.len();
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(listed, 10_500);
}

/// A store with one consumed record, whose result has this size.
async fn consumed(server: &RedisServer, size: usize) -> RedisStore {
    let store = RedisStore::builder(server.url()).cache(None).connect().await.unwrap();
    let ask = ask_number(1, 1);
    assert!(matches!(store.claim(&ask).await, Ok(Claim::Acquired(_))));
    let done = Completion { value: Some(vec![b'v'; size].into()), retain: Duration::from_secs(60) };
    store.complete(&ClaimHandle::unanswered(ask.key, ask.owner), &done).await.unwrap();
    store
}

async fn sizes(store: &RedisStore) -> Vec<Option<u64>> {
    let page = store.search(&KeyFilter::all(), None, PageLimits::default()).await.unwrap();
    page.entries.iter().map(|entry| entry.result_bytes).collect()
}

#[tokio::test]
async fn the_size_of_a_result_is_exact_and_unknown_without_the_permission() {
    for size in [0, 1, 30, 5_000, 1_000_000] {
        let server = RedisServer::start();
        let store = consumed(&server, size).await;
        assert_eq!(sizes(&store).await, [Some(size as u64)]);
        server.command(&["ACL", "SETUSER", "default", "-strlen"]);
        let is_short = size <= 1;
        assert_eq!(sizes(&store).await, [Some(size as u64).filter(|_| is_short)], "{size} bytes");
    }
}

#[tokio::test]
async fn a_namespace_with_pattern_characters_lists_its_own_keys_only() {
    let server = RedisServer::start();
    let store = RedisStore::builder(server.url()).cache(None).connect().await.unwrap();
    for (number, name) in ["sh*p:mq:a", "shop:mq:a", "sh_p:mq:b"].into_iter().enumerate() {
        let ask = ClaimRequest { key: Key::from_parts(name, number as u128), ..ask_number(7, 1) };
        assert!(matches!(store.claim(&ask).await, Ok(Claim::Acquired(_))));
    }
    let mut filter = KeyFilter::all();
    filter.namespace = Some("sh*p".into());
    let page = store.search(&filter, None, PageLimits::default()).await.unwrap();
    let mut names: Vec<_> = page.entries.iter().map(|entry| entry.key.name()).collect();
    names.sort_unstable();
    assert_eq!(names, ["sh_p:mq:a", "sh_p:mq:b"], "keys contain an encoded namespace");
}

#[tokio::test]
async fn keys_of_other_namespaces_count_against_the_budget_and_not_as_examined() {
    let server = RedisServer::start();
    let store = RedisStore::builder(server.url()).cache(None).connect().await.unwrap();
    let requests: Vec<_> = (0..500).map(|number| ask_number(number, 1)).collect();
    assert!(store.claim_all(&requests).await.iter().all(Result::is_ok));
    let mut filter = KeyFilter::all();
    filter.namespace = Some("another".into());
    let (mut after, mut pages) = (None, 0);
    loop {
        let page = store.search(&filter, after, PageLimits { keys: 10, examined: 50 }).await.unwrap();
        assert_eq!((page.len(), page.examined), (0, 0));
        assert!(page.now.0 > 0, "an empty page has the time as well");
        (after, pages) = (page.next, pages + 1);
        if after.is_none() {
            break;
        }
    }
    // One SCAN may return more keys than the page has room for.
    assert!(pages > 5, "{pages} pages: 500 keys at 50 for each page");
}

/// A page that ends within the keys of one `SCAN` is continued with the same keys.
#[tokio::test]
async fn pages_of_any_size_list_each_key_once() {
    let server = RedisServer::start();
    let store = RedisStore::builder(server.url()).cache(None).connect().await.unwrap();
    let requests: Vec<_> = (0..1_000_u128)
        .map(|number| ClaimRequest {
            // The highest bits are the rank.
            key: Key::from_parts("idempotent:mq:a", number.wrapping_mul(0x9e37_79b9_7f4a_7c15) << 64 | number),
            ..ask_number(number, 1)
        })
        .collect();
    for some in requests.chunks(500) {
        assert!(store.claim_all(some).await.iter().all(Result::is_ok));
    }
    for keys in [1, 3, 50, 777] {
        let (mut after, mut listed) = (None, Vec::new());
        loop {
            let limits = PageLimits { keys, ..PageLimits::default() };
            let page = store.search(&KeyFilter::all(), after, limits).await.unwrap();
            listed.extend(page.entries.iter().map(|entry| entry.key.hash()));
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        listed.sort_unstable();
        let count = listed.len();
        listed.dedup();
        assert_eq!((count, listed.len()), (1_000, 1_000), "pages of {keys}");
    }
}
