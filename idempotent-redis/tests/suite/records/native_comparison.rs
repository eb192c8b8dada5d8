//! Completions by `SET … IFEQ`, where the server has that option.
use idempotent_core::{Batch, ClaimHandle, Completion, ReleaseKind, Settled, StateKind, Store};
use idempotent_harness::servers::RedisServer;
use idempotent_redis::RedisStore;

use crate::support::runs::{record, secs, ttl};
use crate::support::{calls, done, hold, open_without_cache, put_down, start_without_cache};

/// Returns whether the server has the option: Redis 8.4 and later, Valkey 8.1 and later.
fn has_comparison(server: &RedisServer) -> bool {
    let first_two = |number: &str| {
        let mut parts = number.split('.').map(|part| part.parse::<u32>().unwrap_or_default());
        (parts.next().unwrap_or_default(), parts.next().unwrap_or_default())
    };
    let valkey = server.info("valkey_version");
    if valkey.is_empty() { first_two(&server.info("redis_version")) >= (8, 4) } else { first_two(&valkey) >= (8, 1) }
}

#[tokio::test]
async fn a_completion_is_a_command_where_the_server_compares_and_a_script_elsewhere() {
    let (server, store) = start_without_cache().await;
    for (part, is_batch) in [("single", false), ("batch", true)] {
        let held = hold(&store, part, 1).await;
        let before = (calls(&server, "evalsha"), calls(&server, "time"));
        let completion = Completion { retain: secs(60), ..done(Some(b"{}")) };
        let settled = match is_batch {
            false => store.complete(&held, &completion).await,
            true => store.complete_all(&[(held, completion)]).await.remove(0),
        };
        assert_eq!(settled.unwrap(), Settled::Done);
        let scripts = calls(&server, "evalsha") - before.0;
        assert_eq!(scripts, u64::from(!has_comparison(&server)), "{part}");
        // A script asks for the time, too.
        assert_eq!(calls(&server, "time"), before.1 + 1, "{part}");
        assert_eq!(record(&store, part).await.unwrap().state.kind(), StateKind::Consumed);
        assert!((1..=60_000).contains(&ttl(&server, part)), "{part}");
    }
}

/// Otherwise the record would expire before the clock has passed its number, and the next number could be lower.
#[tokio::test]
async fn a_completion_after_the_clock_was_set_back_outlasts_its_number() {
    let server = RedisServer::builder().faketime().start();
    let store = open_without_cache(&server).await;
    let (single, batched) = (hold(&store, "single", 1).await, hold(&store, "batch", 1).await);
    server.shift_clock(-3_600.0);
    let short = Completion { retain: secs(1), ..done(None) };
    assert_eq!(store.complete(&single, &short).await.unwrap(), Settled::Done);
    assert_eq!(store.complete_all(&[(batched, short)]).await.remove(0).unwrap(), Settled::Done);
    for part in ["single", "batch"] {
        assert!(ttl(&server, part) > 3_500_000, "{part}: {}", ttl(&server, part));
    }
}

/// A failover may lead to an older server.
#[tokio::test]
async fn a_server_that_refuses_the_option_is_asked_by_script_from_then_on() {
    let server = RedisServer::start();
    let store = RedisStore::builder(server.url()).cache(None).native_comparison(true).connect().await.unwrap();
    let refused = || {
        let stats = server.info("cmdstat_set");
        let rejected = |stats: &str| stats.split(',').find_map(|part| part.strip_prefix("failed_calls=")?.parse().ok());
        rejected(&stats).unwrap_or(0_u64)
    };
    let before = refused();
    for part in ["first", "second", "third"] {
        let held = hold(&store, part, 1).await;
        assert_eq!(store.complete(&held, &done(None)).await.unwrap(), Settled::Done);
        assert_eq!(record(&store, part).await.unwrap().state.kind(), StateKind::Consumed);
    }
    assert_eq!(refused() - before, u64::from(!has_comparison(&server)));
}

/// Versions that complete only by scripts complete what this version has claimed, and the other way round. Their handles have no
/// terms, and the scripts of Redis 6.2 are those of the first version.
#[tokio::test]
async fn records_of_every_form_are_read_and_ended_by_every_other() {
    let server = RedisServer::start();
    let builder = || RedisStore::builder(server.url()).cache(None);
    let forms = [builder(), builder().native_comparison(false), builder().plain_scripts()];
    let mut stores = Vec::new();
    for form in forms {
        stores.push(form.connect().await.unwrap());
    }
    for (by, claiming) in stores.iter().enumerate() {
        for (other, ending) in stores.iter().enumerate() {
            // A record that was not renewed is completed by the whole record of its grant.
            for (with_terms, renewed) in [(true, true), (true, false), (false, true)] {
                let part = format!("{by}-{other}-{with_terms}-{renewed}");
                let held = hold(claiming, &part, 1).await;
                let held = if with_terms { held } else { ClaimHandle { terms: None, ..held } };
                if renewed {
                    assert_eq!(ending.renew(&held, secs(60)).await.unwrap(), Settled::Done, "{part}");
                }
                assert_eq!(ending.complete(&held, &done(Some(b"1"))).await.unwrap(), Settled::Done, "{part}");
                for reading in &stores {
                    assert_eq!(record(reading, &part).await.unwrap().state.kind(), StateKind::Consumed, "{part}");
                }
                let released = hold(claiming, &format!("{part}-released"), 1).await;
                let delete = put_down(ReleaseKind::Delete);
                assert_eq!(ending.release(&released, &delete).await.unwrap(), Settled::Done, "{part}");
            }
        }
    }
}
