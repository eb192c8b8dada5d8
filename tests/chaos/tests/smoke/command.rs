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

/// The factor by which a play may be longer than requested.
const LONGEST: u64 = 4;

/// Plays until the exit code is `wanted` and the output is `done`. On a busy machine less happens in a second: a play in
/// which too little happened (exit code 2), or in which a planted flaw had no effect yet (0) or another one only, is played
/// again for twice the seconds. Any other end is final, and what has to happen stays the same.
fn until_enough(arguments: &[&str], wanted: i32, done: impl Fn(&Output) -> bool) -> (Output, Value) {
    let given = arguments.iter().position(|argument| *argument == "--seconds").map(|at| arguments[at + 1]);
    let seconds: u64 = given.map_or(60, |given| given.parse().unwrap());
    let enough = seconds.to_string();
    let mut long = seconds;
    loop {
        let (output, closing) = run(&[arguments, &["--seconds", &long.to_string(), "--enough", &enough]].concat());
        let code = output.status.code();
        if code == Some(wanted) && done(&output) {
            return (output, closing.unwrap());
        }
        let little = matches!(code, Some(0 | 2)) || code == Some(wanted);
        let too_little = little && closing.is_some() && long < LONGEST * seconds;
        assert!(too_little, "{arguments:?} for {long} s: {}", said(&output));
        long *= 2;
    }
}

/// Held, with as much of everything as a run of this length has to have.
pub(crate) fn holds(arguments: &[&str]) -> Value {
    let (_, closing) = until_enough(arguments, 0, |_| true);
    assert_eq!(closing["violations"].as_u64(), Some(0));
    closing
}

/// Plays until the invariant `finding` is violated, or any if it is empty, and returns all that were.
pub(crate) fn violated(arguments: &[&str], finding: &str) -> BTreeSet<String> {
    let done = |output: &Output| findings(output).iter().any(|found| found.starts_with(finding));
    let (output, closing) = until_enough(arguments, 1, done);
    assert!(closing["violations"].as_u64() > Some(0));
    findings(&output)
}

fn findings(output: &Output) -> BTreeSet<String> {
    let said = said(output);
    // The output contains tallies in the same format.
    let findings = said.lines().filter(|line| !line.ends_with(" not judged"));
    let names = findings.filter_map(|line| line.split_once(": ")).map(|(name, _)| name);
    let is_name = |name: &&str| name.len() <= 3 && name.starts_with(['I', 'D', 'O', 'Q', 'R', 'T']);
    names.filter(is_name).map(str::to_owned).collect()
}
