use super::*;
use crate::store::{RecordEntry, RecordPage};
use crate::{FencingToken, Identity, OwnerToken, Scene, StoreError, StoreErrorKind};

const SECOND: u64 = 1_000_000;

fn key(namespace: &str, scope: &str) -> Key {
    Identity::new(Scene::Mq, scope.to_owned(), "o-17").key(namespace).unwrap()
}

fn record(state: State) -> Record {
    Record {
        fencing: FencingToken(7),
        attempt: 2,
        fingerprint: None,
        state,
        expires_at: Timestamp(900 * SECOND),
        first_seen: Timestamp(100 * SECOND),
        updated_at: Timestamp(100 * SECOND),
        display: None,
    }
}

fn consuming() -> Record {
    record(State::Consuming { owner: OwnerToken(9), until: Timestamp(130 * SECOND), taken_over: None })
}

fn pattern(text: &str) -> Option<NamePattern> {
    Some(NamePattern::parse(text).unwrap())
}

#[test]
fn a_consuming_key_is_orphaned_one_lease_after_its_lease() {
    let filter = KeyFilter { orphaned: true, ..KeyFilter::all() };
    let key = key("shop", "orders");
    for (at, orphaned) in [(129, false), (131, false), (160, false), (161, true)] {
        assert_eq!(filter.selects(&key, &consuming(), Timestamp(at * SECOND)), orphaned, "at {at} s");
    }
    let dead = record(State::Dead { error: "no stock".into() });
    assert!(!filter.selects(&key, &dead, Timestamp(800 * SECOND)));
}

#[test]
fn names_states_ages_and_attempts_are_compared() {
    let (now, key) = (Timestamp(160 * SECOND), key("shop", "orders"));
    let all = KeyFilter::default;
    let minute = Some(Duration::from_secs(60));
    for (filter, selected) in [
        (all(), true),
        (KeyFilter { namespace: Some("shop".into()), ..all() }, true),
        (KeyFilter { namespace: Some("sho".into()), ..all() }, false),
        (KeyFilter { scene: pattern("mq"), ..all() }, true),
        (KeyFilter { scene: pattern("rest"), ..all() }, false),
        (KeyFilter { scope: pattern("orders"), ..all() }, true),
        (KeyFilter { scope: pattern("order"), ..all() }, false),
        (KeyFilter { scope: pattern("order*"), ..all() }, true),
        (KeyFilter { scope: pattern("*"), ..all() }, true),
        (KeyFilter { states: vec![StateKind::Dead], ..all() }, false),
        (KeyFilter { older_than: minute, ..all() }, true),
        (KeyFilter { older_than: minute.map(|m| m * 2), ..all() }, false),
        (KeyFilter { newer_than: minute, ..all() }, true),
        (KeyFilter { newer_than: minute.map(|m| m / 2), ..all() }, false),
        (KeyFilter { min_attempt: 2, ..all() }, true),
        (KeyFilter { min_attempt: 3, ..all() }, false),
    ] {
        assert_eq!(filter.selects(&key, &consuming(), now), selected, "{filter:?}");
        assert!(!filter.selects(&key, &consuming(), Timestamp(900 * SECOND)), "expired: {filter:?}");
        assert!(!selected || key.name().starts_with(&filter.name_prefix()), "{filter:?}");
    }
}

#[test]
fn encoded_and_truncated_names_are_found_by_their_own_text() {
    let long = "a scope with blanks, ".repeat(10);
    let key = key("my shop:eu", &long);
    let now = Timestamp(160 * SECOND);
    for (scope, selected) in [
        (NamePattern::Exact(long.clone()), true),
        (NamePattern::Exact("a scope with".into()), false),
        (NamePattern::Prefix("a scope with".into()), true),
        (NamePattern::Prefix("a_scope with".into()), true),
        (NamePattern::Prefix("another".into()), false),
    ] {
        let (namespace, scene) = (Some("my shop:eu".to_owned()), pattern("mq"));
        let filter = KeyFilter { namespace, scene, scope: Some(scope), ..KeyFilter::all() };
        assert_eq!(filter.selects(&key, &consuming(), now), selected, "{filter:?}");
        assert!(!selected || key.name().starts_with(&filter.name_prefix()), "{filter:?}");
    }
}

#[test]
fn the_prefix_of_the_names_is_as_long_as_the_filter_allows() {
    let all = || KeyFilter { namespace: Some("shop".into()), ..KeyFilter::default() };
    for (filter, prefix) in [
        (KeyFilter { namespace: None, ..all() }, ""),
        (all(), "shop:"),
        (KeyFilter { scene: pattern("m*"), ..all() }, "shop:m"),
        (KeyFilter { scene: pattern("mq"), ..all() }, "shop:mq:"),
        (KeyFilter { scene: pattern("mq"), scope: pattern("or*"), ..all() }, "shop:mq:or"),
        (KeyFilter { scope: pattern("orders"), ..all() }, "shop:"),
    ] {
        assert_eq!(filter.name_prefix(), prefix, "{filter:?}");
    }
}

#[test]
fn a_filter_without_a_name_selects_names_of_other_forms() {
    let key = Key::from_parts("other", 7);
    assert!(KeyFilter::all().selects(&key, &consuming(), Timestamp(160 * SECOND)));
    assert!(!KeyFilter { scope: pattern("*"), ..KeyFilter::all() }.selects(
        &key,
        &consuming(),
        Timestamp(160 * SECOND)
    ));
}

#[test]
fn a_filter_of_states_selects_readable_records_only() {
    assert!(KeyFilter::default().selects_any_unreadable());
    assert!(!KeyFilter::of_states(&[StateKind::Dead]).selects_any_unreadable());
}

#[test]
fn a_page_counts_readable_and_unreadable_records() {
    let now = Timestamp(160 * SECOND);
    let mut page = RecordPage { now, ..RecordPage::default() };
    assert!(page.is_empty());
    let (readable, unreadable) = (key("shop", "orders"), key("shop", "damaged"));
    page.add(&KeyFilter::default(), readable.clone(), Ok(RecordEntry::new(readable, consuming()))).unwrap();
    page.add(&KeyFilter::default(), unreadable, Err(StoreError::new(StoreErrorKind::Corrupt))).unwrap();
    assert_eq!((page.len(), page.is_empty()), (2, false));
}

#[test]
fn an_unreadable_record_is_selected_by_its_name_alone() {
    let key = key("shop", "orders");
    let all = KeyFilter::default;
    for (filter, selected) in [
        (all(), true),
        (KeyFilter { states: vec![StateKind::Dead], ..all() }, true),
        (KeyFilter { scope: pattern("payments"), ..all() }, false),
        (KeyFilter { unreadable: false, ..all() }, false),
        (KeyFilter { orphaned: true, ..all() }, false),
        (KeyFilter { min_attempt: 1, ..all() }, false),
        (KeyFilter { newer_than: Some(Duration::MAX), ..all() }, false),
        (KeyFilter { older_than: Some(Duration::ZERO), ..all() }, false),
    ] {
        assert_eq!(filter.selects_unreadable(&key), selected, "{filter:?}");
    }
}

#[test]
fn a_star_inside_a_pattern_is_refused() {
    for text in ["", "a*b", "**"] {
        let error = NamePattern::parse(text).unwrap_err().to_string();
        assert!(error.contains("a prefix that ends in `*`"), "{error}");
    }
}
