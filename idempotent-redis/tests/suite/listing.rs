//! Listings of a server that several namespaces share.
use std::time::Duration;

use idempotent_core::{
    Batch, ClaimHandle, ClaimRequest, Completion, Key, KeyFilter, PageLimits, RecordPage, Search, Store,
};
use idempotent_redis::RedisStore;

use crate::support::{ask_number, granted, start_without_cache};

/// Returns all pages of a listing.
async fn pages(store: &RedisStore, filter: &KeyFilter, limits: PageLimits) -> Vec<RecordPage> {
    let mut pages = vec![store.search(filter, None, limits).await.unwrap()];
    while let Some(after) = pages[pages.len() - 1].next {
        pages.push(store.search(filter, Some(after), limits).await.unwrap());
    }
    pages
}

async fn claim_all(store: &RedisStore, requests: &[ClaimRequest]) {
    for some in requests.chunks(500) {
        assert!(store.claim_all(some).await.iter().all(Result::is_ok));
    }
}

fn of_namespace(namespace: &str) -> KeyFilter {
    let mut filter = KeyFilter::all();
    filter.namespace = Some(namespace.into());
    filter
}

#[tokio::test]
async fn a_page_of_a_billion_records_has_at_most_10_000() {
    let (_server, store) = start_without_cache().await;
    claim_all(&store, &(0..10_500).map(|number| ask_number(number, 1)).collect::<Vec<_>>()).await;
    let limits = PageLimits { keys: 1_000_000_000, examined: usize::MAX };
    let listed: Vec<_> = pages(&store, &KeyFilter::all(), limits).await.iter().map(|page| page.entries.len()).collect();
    assert!(listed.iter().all(|entries| *entries <= 10_000) && listed.iter().sum::<usize>() == 10_500, "{listed:?}");
}

#[tokio::test]
async fn the_size_of_a_result_is_exact_and_unknown_without_the_permission() {
    for size in [0, 1, 30, 5_000, 1_000_000] {
        let (server, store) = start_without_cache().await;
        let request = ask_number(1, 1);
        granted(store.claim(&request).await.unwrap());
        let done = Completion { value: Some(vec![b'v'; size].into()), retain: Duration::from_secs(60) };
        store.complete(&ClaimHandle::unanswered(request.key, request.owner), &done).await.unwrap();
        let sizes = async || {
            let page = store.search(&KeyFilter::all(), None, PageLimits::default()).await.unwrap();
            page.entries.iter().map(|entry| entry.result_bytes).collect::<Vec<_>>()
        };
        assert_eq!(sizes().await, [Some(size as u64)]);
        server.command(&["ACL", "SETUSER", "default", "-strlen"]);
        let is_short = size <= 1;
        assert_eq!(sizes().await, [Some(size as u64).filter(|_| is_short)], "{size} bytes");
    }
}

#[tokio::test]
async fn a_namespace_with_pattern_characters_lists_its_own_keys_only() {
    let (_server, store) = start_without_cache().await;
    for (number, name) in ["sh*p:mq:a", "shop:mq:a", "sh_p:mq:b"].into_iter().enumerate() {
        let request = ClaimRequest { key: Key::from_parts(name, number as u128), ..ask_number(7, 1) };
        granted(store.claim(&request).await.unwrap());
    }
    let page = store.search(&of_namespace("sh*p"), None, PageLimits::default()).await.unwrap();
    let mut names: Vec<_> = page.entries.iter().map(|entry| entry.key.name()).collect();
    names.sort_unstable();
    assert_eq!(names, ["sh_p:mq:a", "sh_p:mq:b"], "keys contain an encoded namespace");
}

#[tokio::test]
async fn keys_of_other_namespaces_count_against_the_budget_and_not_as_examined() {
    let (_server, store) = start_without_cache().await;
    claim_all(&store, &(0..500).map(|number| ask_number(number, 1)).collect::<Vec<_>>()).await;
    let pages = pages(&store, &of_namespace("another"), PageLimits { keys: 10, examined: 50 }).await;
    for page in &pages {
        assert_eq!((page.len(), page.examined), (0, 0));
        assert!(page.now.0 > 0, "an empty page has the time as well");
    }
    // One SCAN may return more keys than the page has room for.
    assert!(pages.len() > 5, "{} pages: 500 keys at 50 for each page", pages.len());
}

/// A page that ends within the keys of one `SCAN` is continued with the same keys.
#[tokio::test]
async fn pages_of_any_size_list_each_key_once() {
    let (_server, store) = start_without_cache().await;
    // The highest bits are the rank.
    let key =
        |number: u128| Key::from_parts("idempotent:mq:a", number.wrapping_mul(0x9e37_79b9_7f4a_7c15) << 64 | number);
    let requests: Vec<_> = (0..1_000).map(|at| ClaimRequest { key: key(at), ..ask_number(at, 1) }).collect();
    claim_all(&store, &requests).await;
    for keys in [1, 3, 50, 777] {
        let pages = pages(&store, &KeyFilter::all(), PageLimits { keys, ..PageLimits::default() }).await;
        let mut listed: Vec<_> = pages.iter().flat_map(|page| &page.entries).map(|entry| entry.key.hash()).collect();
        listed.sort_unstable();
        let count = listed.len();
        listed.dedup();
        assert_eq!((count, listed.len()), (1_000, 1_000), "pages of {keys}");
    }
}
