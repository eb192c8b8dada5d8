//! Laws about the search: each selected key once, within limits, and without results.
use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use idempotent_core::{
    ClaimRequest, Clock, Key, KeyFilter, NamePattern, PageLimits, RecordEntry, RecordPage, ReleaseKind, Scene, State,
    StateKind,
};

use crate::conformance::Subject;
use crate::conformance::subject::{HOUR, HeldBy, acquired, done, must, put_down};

async fn page(s: &Subject, filter: &KeyFilter, after: Option<u128>, limits: PageLimits) -> RecordPage {
    must("search", s.search().search(filter, after, limits).await)
}

/// Returns the entries of all pages, with at most `keys` entries on each one.
async fn all(s: &Subject, filter: &KeyFilter, keys: usize) -> Vec<RecordEntry> {
    let (mut after, mut found, mut pages) = (None, Vec::new(), 0);
    loop {
        let page = page(s, filter, after, PageLimits { keys, ..PageLimits::default() }).await;
        assert!(page.unreadable.is_empty(), "{:?}", page.unreadable);
        found.extend(page.entries);
        after = page.next;
        if after.is_none() {
            return found;
        }
        // Short pages are allowed, but an endless listing is not.
        pages += 1;
        assert!(pages < 1_000, "1,000 pages and still a next one: `next` is to lead on from `after`");
    }
}

/// Claims keys with these names.
async fn claimed(s: &Subject, name: &str, count: u32) -> HashMap<u128, Key> {
    let mut keys = HashMap::new();
    for number in 0..count {
        let ask = s.ask_on(&format!("{name} {number}"), 1);
        acquired(s.claim(&ask).await);
        keys.insert(ask.key.hash(), ask.key);
    }
    keys
}

pub async fn a_search_lists_each_live_key_once(s: &Subject) {
    let mut expected = claimed(s, "listed", 25).await;
    let gone = ClaimRequest { key: s.key("gone"), retention: Duration::ZERO, ..s.ask(1) };
    acquired(s.claim(&gone).await);
    s.pass(s.lease()).await;
    for keys in [7, 1_000] {
        let seen = all(s, &KeyFilter::all(), keys).await;
        for entry in &seen {
            assert_ne!(entry.key.hash(), gone.key.hash(), "a record past its time is listed");
            assert_eq!(must("peek", s.store.peek(&entry.key).await).as_ref(), Some(&entry.record));
            if let Some(key) = expected.get(&entry.key.hash()) {
                assert_eq!(entry.key, *key, "its name comes back too");
            }
        }
        let hashes: BTreeSet<_> = seen.iter().map(|entry| entry.key.hash()).collect();
        assert_eq!(hashes.len(), seen.len(), "a key was listed twice");
        expected.retain(|hash, _| !hashes.contains(hash));
        assert!(expected.is_empty(), "not listed: {expected:?}");
    }
    let page = page(s, &KeyFilter::all(), None, PageLimits::default()).await;
    match &s.clock {
        Some(clock) => assert_eq!(page.now, clock.wall(), "the time is the store's"),
        None => {
            assert!(page.entries.iter().all(|entry| page.now >= entry.record.updated_at), "the time is the store's")
        }
    }
}

pub async fn a_search_selects_by_every_condition_of_its_filter(s: &Subject) {
    let ask = |name: &str| ClaimRequest { lease: s.lease(), ..s.ask_on(name, 1) };
    for (name, verdict) in [
        ("vacant", Some(ReleaseKind::Vacate)),
        ("failed", Some(ReleaseKind::MarkFailed)),
        ("dead", Some(ReleaseKind::MarkDead)),
        ("consumed", None),
    ] {
        acquired(s.claim(&ask(name)).await);
        match verdict {
            Some(verdict) => must("release", s.store.release(&ask(name).held(), &put_down(verdict)).await),
            None => must("complete", s.store.complete(&ask(name).held(), &done(b"v", HOUR)).await),
        };
    }
    acquired(s.claim(&ask("orphaned")).await);
    // A long lease, so that this key is neither orphaned nor new at the end.
    acquired(s.claim(&ClaimRequest { lease: HOUR, ..ask("held") }).await);
    let other = s.key_of(&idempotent_core::Identity::new(Scene::Rest, "other scope", "part"));
    acquired(s.claim(&ClaimRequest { key: other, lease: HOUR, ..ask("other") }).await);
    s.pass(s.lease() * 4).await;
    acquired(s.claim(&ask("new")).await);
    must("release", s.store.release(&ask("new").held(), &put_down(ReleaseKind::Vacate)).await);
    let again = ClaimRequest { lease: HOUR, ..ask("new") };
    assert_eq!(acquired(s.claim(&again).await).attempt, 2);

    let names = ["vacant", "failed", "dead", "consumed", "orphaned", "held", "new"];
    let every = [&names[..], &["other"]].concat();
    let name = |hash: u128| names.into_iter().find(|name| s.key(name).hash() == hash).unwrap_or("other");
    let with = |change: &dyn Fn(&mut KeyFilter)| {
        let mut filter = KeyFilter::all();
        change(&mut filter);
        filter
    };
    let pattern = |text: &str| Some(NamePattern::parse(text).unwrap());
    let but = |without: &[&str]| every.iter().copied().filter(|name| !without.contains(name)).collect::<Vec<_>>();
    let old = Some(s.lease() * 2);
    for (filter, expected) in [
        (KeyFilter::all(), every.clone()),
        (KeyFilter::default(), but(&["vacant", "consumed"])),
        (KeyFilter::of_states(&[StateKind::Vacant]), vec!["vacant"]),
        (KeyFilter::of_states(&[StateKind::Consumed, StateKind::Dead]), vec!["consumed", "dead"]),
        (with(&|filter| filter.namespace = Some("laws".into())), every.clone()),
        (with(&|filter| filter.namespace = Some("law".into())), Vec::new()),
        (with(&|filter| filter.scene = pattern("mq")), but(&["other"])),
        (with(&|filter| filter.scope = pattern("law")), but(&["other"])),
        (with(&|filter| filter.scope = pattern("other*")), vec!["other"]),
        (with(&|filter| filter.scope = pattern("other scope")), vec!["other"]),
        (
            with(&|filter| {
                (filter.namespace, filter.scene, filter.scope) = (Some("laws".into()), pattern("rest"), pattern("o*"));
            }),
            vec!["other"],
        ),
        (with(&|filter| filter.older_than = old), but(&["new", "consumed"])),
        (with(&|filter| filter.newer_than = old), vec!["new"]),
        (with(&|filter| filter.min_attempt = 2), vec!["new"]),
        (with(&|filter| filter.orphaned = true), vec!["orphaned"]),
    ] {
        let found = all(s, &filter, 3).await;
        // A store need not keep the times of a consumed record.
        let is_compared = |name: &&str| *name != "consumed" || (filter.older_than, filter.newer_than) == (None, None);
        let found: BTreeSet<_> = found.iter().map(|entry| name(entry.key.hash())).filter(is_compared).collect();
        assert_eq!(found, expected.into_iter().collect(), "{filter:?}");
    }
}

pub async fn a_search_stays_within_its_limits(s: &Subject) {
    let expected = claimed(s, "limited", 25).await;
    let dead = s.ask_on("limited 7", 1);
    must("release", s.store.release(&dead.held(), &put_down(ReleaseKind::MarkDead)).await);
    for (filter, keys, examined) in
        [(KeyFilter::all(), 0, 0), (KeyFilter::all(), 3, 1_000), (KeyFilter::all(), 1_000, 4)].into_iter().chain([
            (KeyFilter::of_states(&[StateKind::Dead]), 1_000, 4),
            (KeyFilter::of_states(&[StateKind::Dead]), 1, 1),
        ])
    {
        let (mut after, mut found, mut sum, mut pages) = (None, 0, 0, 0);
        loop {
            let page = page(s, &filter, after, PageLimits { keys, examined }).await;
            assert!(page.len() <= keys.max(1), "a page longer than asked: {}", page.len());
            assert!(page.examined <= examined.max(1), "more examined than allowed: {}", page.examined);
            assert!(page.examined >= page.len(), "more found than examined");
            (found, sum, pages, after) = (found + page.len(), sum + page.examined, pages + 1, page.next);
            assert!(pages < 10_000, "the pages do not end");
            if after.is_none() {
                break;
            }
        }
        let selected = if filter.states == [StateKind::Dead] { 1 } else { expected.len() };
        assert_eq!((found, sum), (selected, expected.len()), "{filter:?}, {keys} keys, {examined} examined");
    }
}

pub async fn a_search_returns_no_results(s: &Subject) {
    let result = [b'v'; 3_000];
    acquired(s.claim_by(1).await);
    s.complete(1, &result).await;
    let without = s.ask_on("without", 1);
    acquired(s.claim(&without).await);
    let nothing = idempotent_core::Completion { value: None, ..done(b"", HOUR) };
    must("complete", s.store.complete(&without.held(), &nothing).await);
    let found = all(s, &KeyFilter::of_states(&[StateKind::Consumed]), 10).await;
    assert_eq!(found.len(), 2);
    for entry in found {
        assert!(matches!(entry.record.state, State::Consumed { value: None, .. }), "a result was loaded");
        let size = (entry.key == s.key("k")).then_some(result.len() as u64);
        assert!(entry.result_bytes == size || entry.result_bytes.is_none(), "{:?} bytes", entry.result_bytes);
    }
}

pub async fn a_search_resumes_after_inserts_and_deletions(s: &Subject) {
    let stay = claimed(s, "stay", 25).await;
    claimed(s, "leave", 8).await;
    let (mut after, mut seen, mut round) = (None, Vec::new(), 0);
    loop {
        let page = page(s, &KeyFilter::all(), after, PageLimits { keys: 4, ..PageLimits::default() }).await;
        seen.extend(page.entries.into_iter().map(|entry| entry.key.hash()));
        after = page.next;
        if after.is_none() {
            break;
        }
        // No new keys after the first rounds, since a listing may follow inserted ones for ever.
        if round < 8 {
            let leaving = s.ask_on(&format!("leave {round}"), 1).held();
            must("release", s.store.release(&leaving, &put_down(ReleaseKind::Delete)).await);
            claimed(s, &format!("come {round}"), 2).await;
        }
        round += 1;
        assert!(round < 1_000, "1,000 pages and still a next one: `next` is to lead on from `after`");
        assert!(round < 1_000, "the pages do not end");
    }
    for hash in stay.keys() {
        let times = seen.iter().filter(|seen| *seen == hash).count();
        assert_eq!(times, 1, "a key that existed throughout was listed {times} times");
    }
}
