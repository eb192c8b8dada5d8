//! Short runs of the real thing: what it shows, what it refuses, and how it ends.
#![allow(clippy::unwrap_used)]
use std::process::{Command, Output};

use idempotent_testkit::history::{History, Kind};
use serde_json::Value;

fn chaos(arguments: &[&str]) -> (Output, Option<Value>) {
    let output = Command::new(env!("CARGO_BIN_EXE_idempotent-chaos")).args(arguments).output().unwrap();
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    let closing = text.lines().last().and_then(|line| serde_json::from_str(line).ok());
    (output, closing)
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn killed_and_stopped_workers_on_one_file_break_no_invariant() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("history.jsonl");
    let (output, closing) = chaos(&["sqlite", "--seconds", "4", "--seed", "3", "--history", file.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let closing = closing.unwrap();
    assert_eq!((closing["name"].as_str(), closing["violations"].as_u64()), (Some("sqlite"), Some(0)));
    let history: History = std::fs::read_to_string(file).unwrap().parse().unwrap();
    let count = |kind| history.lines.iter().filter(|line| line.event == kind).count() as u64;
    assert_eq!(closing["kills"].as_u64(), Some(count(Kind::Crash)));
    assert_eq!(count(Kind::Produced), count(Kind::EffectTruth));
}

#[test]
fn a_run_without_faults_is_refused_as_vacuous() {
    let (output, closing) = chaos(&["sqlite", "--seconds", "1", "--calm"]);
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    assert!(said(&output).contains("vacuous, a run like this proves nothing: 0 kills"), "{}", said(&output));
    assert_eq!(closing.unwrap()["violations"].as_u64(), Some(0));
}

#[test]
fn what_is_not_understood_starts_nothing() {
    let (output, closing) = chaos(&["redis", "--minutes", "3"]);
    assert_eq!((output.status.code(), closing), (Some(2), None));
    assert!(said(&output).contains("unknown argument `--minutes`"), "{}", said(&output));
}
