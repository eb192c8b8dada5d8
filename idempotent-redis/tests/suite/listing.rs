//! Listings of a server that several namespaces share.
use idempotent_core::{Batch, Claim, ClaimRequest, Key, KeyFilter, PageLimits, Store};
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
                +get +getrange +info +pexpiretime +pttl +publish +scan +set +setrange +strlen +subscribe +time";
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
