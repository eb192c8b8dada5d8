//! The command, as it is called.
use std::collections::BTreeSet;
use std::process::{Command, Output};
use std::sync::{Mutex, PoisonError};

use serde_json::Value;

pub(crate) fn chaos(arguments: &[&str]) -> (Output, Option<Value>) {
    let output = Command::new(env!("CARGO_BIN_EXE_idempotent-chaos")).args(arguments).output().unwrap();
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    let closing = text.lines().last().and_then(|line| serde_json::from_str(line).ok());
    (output, closing)
}

pub(crate) fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// One at a time: each has processes enough for a small machine.
pub(crate) fn run(arguments: &[&str]) -> (Output, Option<Value>) {
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    chaos(arguments)
}

/// Held, with as much of everything as a run of this length has to have.
pub(crate) fn holds(arguments: &[&str]) -> Value {
    let (output, closing) = run(arguments);
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", said(&output));
    let closing = closing.unwrap();
    assert_eq!(closing["violations"].as_u64(), Some(0));
    closing
}

/// Violated; the invariants that were.
pub(crate) fn violated(arguments: &[&str]) -> BTreeSet<String> {
    let (output, closing) = run(arguments);
    assert_eq!(output.status.code(), Some(1), "{arguments:?}: {}", said(&output));
    assert!(closing.unwrap()["violations"].as_u64() > Some(0));
    let said = said(&output);
    // Tallies are told in the same way.
    let findings = said.lines().filter(|line| !line.ends_with(" not judged"));
    let names = findings.filter_map(|line| line.split_once(": ")).map(|(name, _)| name);
    let is_name = |name: &&str| name.len() <= 3 && name.starts_with(['I', 'D', 'Q', 'O', 'R']);
    names.filter(is_name).map(str::to_owned).collect()
}
