//! Each fuzz target with its corpus, and with 20,000 inputs derived from it reproducibly. `FUZZ_INPUTS=1000000` derives
//! more, and `FUZZ_SECONDS=60` as many as fit into that time. `fuzz/` contains the targets for cargo-fuzz, which
//! searches for inputs with new coverage.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr, missing_docs)]
mod mutate;
mod red;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use idempotent_fuzz_bodies::{ALL, Body};

use self::mutate::Mutator;

/// Returns the results that inputs of a target must have: a run in which no input gets far proves nothing.
fn ways(target: &str) -> BTreeMap<&'static str, u32> {
    let corpus = corpus(target);
    let body = ALL.iter().find(|(name, _)| *name == target).unwrap().1;
    let inputs = std::env::var("FUZZ_INPUTS").map_or(20_000, |text| text.parse().unwrap());
    let mut ways = BTreeMap::new();
    for input in &corpus {
        *ways.entry(feed(target, body, input)).or_default() += 1;
    }
    let mut mutator = Mutator::new(1, corpus);
    let seconds = std::env::var("FUZZ_SECONDS").map(|text| Duration::from_secs(text.parse().unwrap()));
    let (begun, mut made) = (Instant::now(), 0);
    while seconds.as_ref().map_or(made < inputs, |seconds| begun.elapsed() < *seconds) {
        made += 1;
        *ways.entry(feed(target, body, &mutator.next())).or_default() += 1;
    }
    eprintln!("{target}: {made} inputs, {ways:?}");
    ways
}

fn corpus(target: &str) -> Vec<Vec<u8>> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort(); // sorted by name, so that a run is the same on every machine
    files.iter().map(|file| std::fs::read(file).unwrap()).collect()
}

fn feed(target: &str, body: Body, input: &[u8]) -> &'static str {
    /// Prints the remedy if the body panics.
    struct Shown<'a>(&'a str, &'a [u8]);
    impl Drop for Shown<'_> {
        fn drop(&mut self) {
            if std::thread::panicking() {
                let (target, input) = (self.0, self.1);
                let hex: String = input.iter().map(|byte| format!("{byte:02x}")).collect();
                eprintln!("{target} fails for \"{}\"; to keep it:", input.escape_ascii());
                eprintln!("  echo {hex} | xxd -r -p > tests/fuzz/corpus/{target}/NAME");
            }
        }
    }
    let _shown = Shown(target, input);
    body(input)
}

fn each_way_was_gone(target: &str, wanted: &[&str]) {
    let ways = ways(target);
    for way in wanted {
        assert!(ways.get(way).is_some_and(|count| *count >= 20), "`{way}` is hardly met: {ways:?}");
    }
}

#[test]
fn records_are_read_as_they_were_written_or_refused_by_their_field() {
    let wanted = ["read", "read of a newer minor version", "corrupt", "unknown version"];
    each_way_was_gone("record_bytes", &wanted);
}

#[test]
fn durations_mean_the_same_in_policy_attribute_and_print() {
    each_way_was_gone("durations", &["read", "refused", "out of the attribute's range"]);
}

#[test]
fn keys_are_equal_if_and_only_if_all_their_parts_are() {
    each_way_was_gone("keys", &["a key", "empty", "too long", "without a name"]);
}

#[test]
fn a_header_holds_a_key_by_the_rules_or_is_refused_in_silence() {
    each_way_was_gone("http_key", &["bare", "quoted", "with parameters", "refused", "empty", "several lines"]);
}

#[test]
fn an_answer_is_replayed_as_it_was_and_a_damaged_one_is_refused() {
    each_way_was_gone("kept", &["read", "read without a body", "refused"]);
}

#[test]
fn policies_are_refused_by_the_setting_or_judged_by_the_rules() {
    each_way_was_gone("policy", &["sound", "unsound", "refused by its setting", "not JSON"]);
}
