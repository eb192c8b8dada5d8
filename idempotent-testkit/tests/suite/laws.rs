//! The lists of laws in the docs of a store's methods, and in those of the protocol's steps and invariants.
use std::collections::BTreeSet;

use idempotent_testkit::conformance::{CasLaw, Law, SkewLaw, laws};

const STORE: &str = include_str!("../../../idempotent-core/src/store.rs");
const ABILITY: &str = include_str!("../../../idempotent-core/src/store/capability.rs");
const SEARCH: &str = include_str!("../../../idempotent-core/src/store/search.rs");
const CAS: &str = include_str!("../../../idempotent-core/src/store/cas.rs");
const LAWS: &str = include_str!("../../src/conformance/laws.rs");

/// Returns the texts between backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// Returns the names under `# Laws` of the item that begins with `item`.
fn listed<'a>(source: &'a str, item: &str) -> BTreeSet<&'a str> {
    let (docs, _) = source.split_once(item).unwrap_or_else(|| panic!("no `{item}`"));
    let is_doc = |line: &&str| line.trim_start().starts_with("///") || line.trim_start().starts_with("#[");
    let mut lines: Vec<_> = docs.lines().rev().skip_while(|line| line.trim().is_empty()).take_while(is_doc).collect();
    lines.reverse();
    let begin = lines.iter().position(|line| line.contains("# Laws")).unwrap_or_else(|| panic!("`{item}` lists none"));
    lines[begin..].iter().flat_map(|line| quoted(line)).filter(|name| name.contains('_')).collect()
}

/// Every law is listed, and everything that is listed is a law.
#[track_caller]
fn all_and_only(listed: &BTreeSet<&str>, laws: &BTreeSet<&str>) {
    let unlisted: Vec<_> = laws.difference(listed).collect();
    assert!(unlisted.is_empty(), "listed nowhere: {unlisted:#?}");
    let unknown: Vec<_> = listed.difference(laws).collect();
    assert!(unknown.is_empty(), "no laws: {unknown:#?}");
}

#[test]
fn the_doc_of_each_method_and_ability_lists_its_laws() {
    let mut named = BTreeSet::new();
    for item in ["pub trait Store:", "async fn claim(", "async fn renew(", "async fn complete(", "async fn release("] {
        named.extend(listed(STORE, item));
    }
    for item in ["async fn peek(", "fn capabilities("] {
        named.extend(listed(STORE, item));
    }
    for capability in ["Batch", "Watch", "Purge", "Admin", "StepStore", "OrderStore"] {
        named.extend(listed(ABILITY, &format!("pub trait {capability}")));
    }
    named.extend(listed(SEARCH, "pub trait Search"));
    all_and_only(&named, &laws::all().map(Law::name).collect());
}

#[test]
fn the_doc_of_each_method_of_a_backend_lists_its_laws() {
    let mut named = listed(CAS, "async fn read(");
    named.extend(listed(CAS, "async fn swap("));
    all_and_only(&named, &laws::cas::all().map(CasLaw::name).collect());
    all_and_only(&listed(CAS, "fn max_skew(&self) -> Duration"), &laws::skew::all().map(SkewLaw::name).collect());
}

/// The rows of the tables in the docs of `conformance::laws`: what each is about, and the laws it names.
fn rows() -> Vec<(&'static str, Vec<&'static str>)> {
    let rows = LAWS.lines().filter_map(|line| line.strip_prefix("//! | ")?.strip_suffix(" |")?.split_once(" | "));
    rows.map(|(about, laws)| (about, quoted(laws).collect()))
        .filter(|(_, laws): &(_, Vec<_>)| !laws.is_empty())
        .collect()
}

#[test]
fn every_step_of_the_protocol_and_every_invariant_a_store_can_show_has_a_law() {
    let rows = rows();
    let steps = [
        "claim of an absent key",
        "claim of a vacant key",
        "claim by the same token",
        "claim of a key in flight",
        "takeover",
        "bury",
        "claim of a delayed key",
        "claim of a failed or dead key",
        "claim of a consumed key",
        "claim with another payload",
        "renew",
        "complete",
        "complete again",
        "release",
        "release of the last run",
        "release with a refund",
        "fail",
        "abandon",
        "forget",
        "purge",
    ];
    let invariants = ["I1 ", "I2 ", "I3 ", "I4 ", "I4b ", "I5 ", "I6 ", "I10 ", "I12 ", "I13 ", "I14 "];
    for step in steps {
        assert!(rows.iter().any(|(about, _)| *about == step), "no law is about: {step}");
    }
    for invariant in invariants {
        assert!(rows.iter().any(|(about, _)| about.starts_with(invariant)), "no law is about {invariant}");
    }
    for effect in ["I7", "I8", "I9", "I11"] {
        assert!(LAWS.contains(effect), "{effect} is not said to be out of a store's reach");
    }
    let mut named: BTreeSet<_> = rows.into_iter().flat_map(|(_, laws)| laws).collect();
    named.insert("random_operations_are_answered_by_the_protocol");
    all_and_only(&named, &laws::all().map(Law::name).collect());
}

#[test]
fn no_two_laws_have_one_name() {
    let backends = laws::cas::all().map(CasLaw::name).chain(laws::skew::all().map(SkewLaw::name));
    let names: Vec<_> = laws::all().map(Law::name).chain(backends).collect();
    assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len());
    assert!(names.len() > 100);
}
