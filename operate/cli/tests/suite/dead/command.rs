//! Runs of the binary.
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;

/// A finished run.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// Runs the binary without settings of the environment and without a terminal.
pub(crate) fn run(arguments: &[&str]) -> Run {
    finished(command(arguments).output().unwrap())
}

/// Starts the binary, and captures its output.
pub(crate) fn spawn(arguments: &[&str]) -> Child {
    command(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

pub(crate) fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_idempotent"));
    for name in ["STORE", "QUEUE", "NAMESPACE", "OUTPUT", "READ_ONLY", "AUDIT", "OUTBOX"] {
        command.env_remove(format!("IDEMPOTENT_{name}"));
    }
    command.env("IDEMPOTENT_BY", "tester").stdin(Stdio::null()).args(arguments);
    command
}

pub(crate) fn finished(output: Output) -> Run {
    let Output { status, stdout, stderr } = output;
    let [out, err] = [stdout, stderr].map(|text| String::from_utf8(text).unwrap());
    Run { code: status.code().unwrap(), out, err }
}

impl Run {
    /// Returns the JSON lines of stdout, after a success.
    pub(crate) fn lines(&self) -> Vec<Value> {
        assert_eq!(self.code, 0, "{self:?}");
        self.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Checks the exit code, and that stderr contains a text.
    pub(crate) fn fails(&self, code: i32, text: &str) {
        assert!(self.code == code && self.err.contains(text), "expected {code} and `{text}`: {self:?}");
    }
}
