//! Laws about capabilities: a reported capability works.
use std::time::Duration;

use idempotent_core::{
    Admin, BrowseOrder, Claim, ClaimHandle, ClaimRequest, Clock, FencingToken, KeyFilter, OrderStore, PageLimits,
    Purge, ReleaseKind, Renewal, Settled, StateKind,
};

use crate::conformance::Subject;
use crate::conformance::subject::{HOUR, HeldBy, MS, acquired, done, lost, must, put_down};

pub async fn reported_capabilities_work(s: &Subject) {
    let first = s.store.capabilities();
    let again = s.store.capabilities();
    let names = |a: idempotent_core::StoreCapabilities<'_>| {
        [
            a.batch.is_some(),
            a.watch.is_some(),
            a.search.is_some(),
            a.purge.is_some(),
            a.admin.is_some(),
            a.inspect.is_some(),
            a.steps.is_some(),
            a.order.is_some(),
            a.browse_order.is_some(),
            a.renewal.is_some(),
            a.health.is_some(),
            a.nodes.is_some(),
        ]
    };
    assert_eq!(names(first), names(again), "a capability does not come and go");
    acquired(s.claim_by(1).await);
    if let Some(batch) = first.batch {
        assert_eq!(batch.claim_all(&[]).await.len(), 0);
        assert_eq!(batch.renew_all(&[(s.held(1), HOUR)]).await.len(), 1);
    }
    if let Some(renewal) = first.renewal {
        renews_while_this_runtime_is_blocked(s, renewal);
    }
    if let Some(watch) = first.watch {
        drop(watch.watch(&s.key("k")));
    }
    if let Some(search) = first.search {
        must("search", search.search(&KeyFilter::all(), None, PageLimits::default()).await);
    }
    if let Some(purge) = first.purge {
        must("purge", purge.purge(10).await);
    }
    if let Some(admin) = first.admin {
        let settled = must("forget", admin.forget(&s.key("absent"), FencingToken(1), true, HOUR).await);
        assert_eq!(settled, lost(StateKind::Absent));
    }
    if let (Some(order), Some(browse)) = (first.order, first.browse_order) {
        lists_each_order_table_once(s, order, browse).await;
    }
    if let Some(health) = first.health {
        let report = must("check", health.check().await);
        assert!(!report.findings().is_empty(), "a check has findings, if only that all is well");
    }
    if let Some(nodes) = first.nodes {
        assert!(nodes.node_count() > 0, "a store with nodes has at least one");
        assert_eq!(nodes.node_of(&s.key("k")), nodes.node_of(&s.key("k")), "a key has one node");
        assert!(nodes.node_of(&s.key("k")).is_some(), "a key has a node");
    }
    if let Some(inspect) = first.inspect {
        let seen = must("inspect", inspect.inspect(&s.key("k")).await).expect("the key is held");
        assert_eq!(Some(&seen.record), s.peek().await.as_ref(), "an inspection returns the same record as a peek");
        // The record is held for the law's lease or, in a batch, renewed to an hour, and retained for an hour more.
        let rest = seen.record.expires_at - seen.now;
        assert!(rest > HOUR / 2 && rest <= 2 * HOUR, "of an hour's memory after a lease {rest:?} are left");
        if let Some(clock) = &s.clock {
            assert_eq!(seen.now, clock.wall(), "the time is the store's");
        }
        assert_eq!(must("inspect", inspect.inspect(&s.key("absent")).await), None);
    }
    assert_eq!(s.complete(1, b"v").await, Settled::Done, "none of them touched a held key");
}

/// Lists the same tables in pages of each size. A bound of pages ends the test of a store whose position stays.
async fn lists_each_order_table_once(s: &Subject, order: &dyn OrderStore, browse: &dyn BrowseOrder) {
    let mut written: Vec<Vec<u8>> = ["one", "two", "three"].map(|name| name.as_bytes().to_vec()).to_vec();
    for (stream, table) in ["k1", "k2", "k3"].into_iter().zip(&written) {
        assert!(must("compare_and_swap", order.compare_and_swap(&s.key(stream), None, table, HOUR).await));
    }
    written.sort();
    for limit in 1..=written.len() + 1 {
        let (mut listed, mut after) = (Vec::new(), None);
        for _ in 0..=written.len() {
            let page = must("browse_order", browse.browse_order(after, limit).await);
            assert!(page.tables.len() <= limit, "a page has at most {limit} tables");
            listed.extend(page.tables.iter().map(|table| table.to_vec()));
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        assert_eq!(after, None, "the listing ends");
        listed.sort();
        assert_eq!(listed, written, "each table is listed once in pages of {limit}");
    }
}

/// Joins the thread without awaiting it: the runtime of the store under test is blocked in the meantime.
fn renews_while_this_runtime_is_blocked(s: &Subject, renewal: &dyn Renewal) {
    let held = s.held(1);
    let renew = || {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
            let store = must("renewal_store", renewal.renewal_store().await);
            let alone = must("renew", store.renew(&held, HOUR).await);
            let together = match store.capabilities().batch {
                Some(batch) => batch.renew_all(&[(held.clone(), HOUR)]).await,
                None => Vec::new(),
            };
            (alone, together)
        })
    };
    let renewed = std::thread::scope(|scope| scope.spawn(renew).join());
    let (alone, together) = renewed.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    assert_eq!(alone, Settled::Done, "the renewal store has the same records");
    for settled in together {
        assert_eq!(must("renew_all", settled), Settled::Done, "the renewal store has the same records");
    }
}

pub async fn a_purge_is_bounded_and_harmless(s: &Subject) {
    let purge = s.purge();
    let brief = |n: u32| ClaimRequest { key: s.key(&format!("brief {n}")), retention: MS, ..s.ask(1) };
    for n in 0..10 {
        acquired(s.claim(&brief(n)).await);
        must("complete", s.store.complete(&brief(n).held(), &done(b"v", s.lease())).await);
    }
    let orphan = ClaimRequest { key: s.key("orphan"), retention: Duration::ZERO, ..s.ask(1) };
    acquired(s.claim(&orphan).await);
    let kept = |n: u32| ClaimRequest { key: s.key(&format!("kept {n}")), ..s.ask(1) };
    for n in 0..4 {
        acquired(s.claim(&kept(n)).await);
    }
    must("complete", s.store.complete(&kept(1).held(), &done(b"v", HOUR)).await);
    must("release", s.store.release(&kept(2).held(), &put_down(ReleaseKind::Vacate)).await);
    must("release", s.store.release(&kept(3).held(), &put_down(ReleaseKind::MarkDead)).await);
    must("purge", purge.purge(1_000).await);
    assert!(must("peek", s.store.peek(&brief(0).key).await).is_some(), "a live record was purged");

    // Two seconds more, since a store may check its records once a second.
    s.pass(s.lease() + Duration::from_secs(2)).await;
    assert_eq!(must("purge", purge.purge(0).await), 0);
    assert!(must("purge", purge.purge(3).await) <= 3, "more were purged than asked");
    drain(purge).await;
    for n in 0..10 {
        assert_eq!(must("peek", s.store.peek(&brief(n).key).await), None);
    }
    // The lease of kept 0 has expired, but the record is retained.
    for (n, state) in [StateKind::Consuming, StateKind::Consumed, StateKind::Vacant, StateKind::Dead].iter().enumerate()
    {
        let record = must("peek", s.store.peek(&kept(u32::try_from(n).unwrap()).key).await);
        assert_eq!(record.expect("a record that still counts was purged").state.kind(), *state);
    }
    assert_eq!(acquired(s.claim(&ClaimRequest { key: s.key("kept 0"), ..s.ask(2) }).await).attempt, 2);
}

/// Purges until no record is left to purge.
async fn drain(purge: &dyn Purge) {
    for _ in 0..1_000 {
        if must("purge", purge.purge(5).await) == 0 {
            return;
        }
    }
    panic!("not done after 1,000 purges of 5: does the purge count records that it does not remove?");
}

pub async fn a_settled_key_is_deleted_only_with_its_fencing_token(s: &Subject) {
    let admin = s.admin();
    for (name, verdict, state) in [
        ("consumed", None, StateKind::Consumed),
        ("failed", Some(ReleaseKind::MarkFailed), StateKind::Failed),
        ("dead", Some(ReleaseKind::MarkDead), StateKind::Dead),
    ] {
        let ask = |owner| ClaimRequest { key: s.key(name), ..s.ask(owner) };
        let forget =
            async |admin: &dyn Admin, fencing| must("forget", admin.forget(&s.key(name), fencing, false, HOUR).await);
        let grant = acquired(s.claim(&ask(1)).await);
        match verdict {
            None => must("complete", s.store.complete(&ask(1).held(), &done(b"v", HOUR)).await),
            Some(verdict) => must("release", s.store.release(&ask(1).held(), &put_down(verdict)).await),
        };
        assert_eq!(
            forget(admin, FencingToken(grant.fencing.0 - 1)).await,
            lost(state),
            "{name}: not the record that was read"
        );
        assert_eq!(forget(admin, grant.fencing).await, Settled::Done, "{name}");
        assert_eq!(forget(admin, grant.fencing).await, lost(StateKind::Vacant), "{name}: once");
        let again = acquired(s.claim(&ClaimRequest { max_attempts: 1, ..ask(2) }).await);
        assert_eq!(again.attempt, 1, "{name}: attempts start again");
        assert!(again.fencing > grant.fencing, "{name}");
    }
}

pub async fn a_held_key_is_deleted_only_by_force(s: &Subject) {
    let admin = s.admin();
    let grant = acquired(s.claim_by(1).await);
    let key = s.key("k");
    let settled = must("forget", admin.forget(&key, grant.fencing, false, HOUR).await);
    assert_eq!(settled, lost(StateKind::Consuming));
    assert_eq!(must("forget", admin.forget(&key, grant.fencing, true, HOUR).await), Settled::Done);
    assert_eq!(s.complete(1, b"v").await, lost(StateKind::Vacant));
    assert!(acquired(s.claim_by(2).await).fencing > grant.fencing);
}

pub async fn watchers_are_woken_by_completion_and_release(s: &Subject) {
    let watch = s.watch();
    for (name, verdict) in
        [("complete", None), ("delete", Some(ReleaseKind::Delete)), ("vacate", Some(ReleaseKind::Vacate))]
    {
        let ask = ClaimRequest { key: s.key(name), lease: HOUR, ..s.ask(1) };
        acquired(s.claim(&ask).await);
        // The wait begins when the watch is created: neither is polled before the key is settled.
        let watching = [watch.watch(&ask.key), watch.watch(&ask.key)];
        match verdict {
            None => must("complete", s.store.complete(&ask.held(), &done(b"v", HOUR)).await),
            Some(verdict) => must("release", s.store.release(&ask.held(), &put_down(verdict)).await),
        };
        for woken in watching.map(tokio::spawn) {
            // A store may have to connect first, on a busy machine.
            let mut patience = 1_000;
            while !woken.is_finished() {
                patience -= 1;
                assert!(patience > 0, "{name} woke no waiter");
                s.pass(100 * MS).await;
                tokio::time::sleep(MS).await;
            }
        }
    }
}

pub async fn a_batch_answers_like_separate_requests(s: &Subject) {
    let batch = s.batch();
    let ask = |key: &str, owner| ClaimRequest { key: s.key(key), ..s.ask(owner) };
    acquired(s.claim(&ask("held", 1)).await);
    // Different attempts and leases, so that no answer can be mistaken for another one.
    acquired(s.claim(&ask("b", 1)).await);
    must("release", s.store.release(&ask("b", 1).held(), &put_down(ReleaseKind::Vacate)).await);
    let long = ClaimRequest { lease: HOUR, ..ask("b", 3) };
    let asks = [ask("a", 1), long, ask("held", 2), ask("a", 4), ask("a", 1)];
    let claims: Vec<_> = batch.claim_all(&asks).await.into_iter().map(|claim| must("claim_all", claim)).collect();
    assert_eq!(claims.len(), asks.len());
    let first = acquired(claims[0].clone());
    assert_eq!((first.attempt, first.lease), (1, s.lease()));
    let second = acquired(claims[1].clone());
    assert_eq!((second.attempt, second.lease), (2, HOUR));
    assert!(matches!(claims[2], Claim::InFlight(_)));
    assert!(matches!(claims[3], Claim::InFlight(_)), "the same key twice in one batch: the first has it");
    assert_eq!(acquired(claims[4].clone()), first, "its owner asking again");
    let held = |key: &str, owner| -> ClaimHandle { ask(key, owner).held() };
    let renewed = batch.renew_all(&[(held("a", 1), HOUR), (held("a", 9), HOUR), (held("none", 1), HOUR)]).await;
    let renewed: Vec<_> = renewed.into_iter().map(|settled| must("renew_all", settled)).collect();
    assert_eq!(renewed, [Settled::Done, lost(StateKind::Consuming), lost(StateKind::Absent)]);
    let completions = [
        (held("a", 1), done(b"first", HOUR)),
        (held("b", 9), done(b"foreign", HOUR)),
        (held("a", 1), done(b"second", HOUR)),
    ];
    let completed: Vec<_> =
        batch.complete_all(&completions).await.into_iter().map(|settled| must("complete_all", settled)).collect();
    assert_eq!(completed, [Settled::Done, lost(StateKind::Consuming), Settled::Done]);
    let Claim::Consumed(kept) = s.claim(&ask("a", 5)).await else { panic!("not consumed") };
    assert_eq!(kept.value.as_deref(), Some(&b"first"[..]));
}
