//! Stores, whose deliveries come from the harness.
use idempotent_chaos::broken_stores::WEAKNESSES;
use idempotent_testkit::history::{History, Kind};

use crate::command::{chaos, holds, run, said, violated};

#[test]
fn killed_and_stopped_workers_on_one_file_break_no_invariant() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("history.jsonl");
    let closing = holds(&["sqlite", "--seconds", "4", "--seed", "3", "--history", file.to_str().unwrap()]);
    assert_eq!(closing["name"].as_str(), Some("sqlite"));
    let history: History = std::fs::read_to_string(file).unwrap().parse().unwrap();
    let count = |kind| history.lines.iter().filter(|line| line.event == kind).count() as u64;
    assert_eq!(closing["kills"].as_u64(), Some(count(Kind::Crash)));
    assert_eq!(count(Kind::Produced), count(Kind::EffectTruth));
}

#[test]
fn cut_connections_flushed_scripts_stops_and_crashes_of_one_redis_break_no_invariant() {
    let closing = holds(&["redis", "--topology", "single", "--seconds", "6", "--seed", "3"]);
    assert!(closing["cuts"].as_u64() > Some(0), "{closing}");
}

#[test]
fn killed_workers_on_a_database_with_a_cache_that_is_flushed_break_no_invariant() {
    let closing = holds(&["tiered", "--seconds", "6", "--seed", "3"]);
    assert!(closing["cache_flushes"].as_u64() > Some(0), "{closing}");
}

#[test]
fn a_run_without_faults_is_refused_as_vacuous() {
    let (output, closing) = run(&["sqlite", "--seconds", "1", "--calm"]);
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    assert!(said(&output).contains("vacuous, a run like this proves nothing: 0 kills"), "{}", said(&output));
    assert_eq!(closing.unwrap()["violations"].as_u64(), Some(0));
}

#[test]
fn an_unknown_argument_starts_nothing() {
    let (output, closing) = chaos(&["redis", "--minutes", "3"]);
    assert_eq!((output.status.code(), closing), (Some(2), None));
    assert!(said(&output).contains("unknown argument `--minutes`"), "{}", said(&output));
}

mod extras {
    use super::*;

    #[test]
    fn a_takeover_before_the_lease_is_over_is_found() {
        violated(&["redis", "--topology", "single", "--seconds", "4", "--weakness", "early-takeover"], "I1");
    }

    #[test]
    fn killed_workers_on_mariadb_break_no_invariant_with_and_without_a_cache() {
        holds(&["mariadb", "--seconds", "6", "--seed", "3"]);
        holds(&["tiered", "--store", "mariadb", "--seconds", "6", "--seed", "3"]);
    }

    #[test]
    fn a_replaced_primary_breaks_no_invariant() {
        let closing = holds(&["redis", "--seconds", "6", "--seed", "3"]);
        assert!(closing["failovers"].as_u64() > Some(0), "{closing}");
    }
}

/// Minutes each: `cargo xtask soak chaos`, which `cargo xtask nightly` runs.
mod soak {
    use super::*;

    #[test]
    #[ignore = "takes minutes"]
    fn each_weakness_is_found() {
        for weakness in WEAKNESSES {
            for seed in ["1", "2"] {
                let topology = ["redis", "--topology", "single", "--seconds", "10", "--seed", seed];
                let found = violated(&[&topology[..], &["--weakness", weakness.name]].concat(), "");
                println!("{} with seed {seed}: {found:?}", weakness.name);
            }
        }
    }
}
