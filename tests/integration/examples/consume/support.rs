//! A folder to work in, the job's binary, and its effects.
use std::collections::HashMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use serde_json::Value;
use sqlx::Connection;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};

use crate::example;

/// The job's program.
fn binary() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| example::binary("consume"))
}

pub(crate) fn webhooks() -> PathBuf {
    example::checkout().join("examples/data/webhooks.jsonl")
}

/// A folder with an input, a store and effects.
pub(crate) struct Job {
    folder: tempfile::TempDir,
}

/// The result of a run.
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Job {
    /// Over the real data.
    pub(crate) fn new() -> Self {
        Self::over(&std::fs::read(webhooks()).unwrap())
    }

    pub(crate) fn over(input: &[u8]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("in.jsonl"), input).unwrap();
        Self { folder }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Returns the command of the job, with the folder's files unless `arguments` set others.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(binary());
        command.current_dir(self.folder.path()).args(arguments);
        for (name, value) in [("--input", "in.jsonl"), ("--store", "store.db"), ("--effects", "effects.db")] {
            let elsewhere = name == "--input" && arguments.contains(&"--source");
            let beside = name == "--effects" && arguments.contains(&"--level");
            if !arguments.contains(&name) && !elsewhere && !beside {
                command.args([name, value]);
            }
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Ended {
        self.spawn(arguments).ended()
    }

    pub(crate) fn spawn(&self, arguments: &[&str]) -> Running {
        Running(Some(self.command(arguments).spawn().unwrap()))
    }

    pub(crate) fn run_with_stdin(&self, arguments: &[&str], input: &[u8]) -> Ended {
        let mut child = self.command(arguments).stdin(Stdio::piped()).spawn().unwrap();
        // Small enough for the pipe; dropped, so that the input ends.
        child.stdin.take().unwrap().write_all(input).unwrap();
        Running(Some(child)).ended()
    }

    /// Rows of the effects by key.
    pub(crate) fn effects(&self) -> HashMap<String, usize> {
        let mut rows = HashMap::new();
        for key in self.try_effects().unwrap() {
            *rows.entry(key).or_default() += 1;
        }
        rows
    }

    /// Returns the effects, or `None` before the job has created the table.
    pub(crate) fn try_effects(&self) -> Option<Vec<String>> {
        self.try_rows("effects.db")
    }

    /// Returns the rows of another file, like [`try_effects`](Self::try_effects).
    pub(crate) fn try_rows(&self, file: &str) -> Option<Vec<String>> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let options = SqliteConnectOptions::new().filename(self.path(file)).busy_timeout(Duration::from_secs(10));
        runtime.block_on(async {
            let mut connection = SqliteConnection::connect_with(&options).await.ok()?;
            sqlx::query_scalar("SELECT key FROM effects").fetch_all(&mut connection).await.ok()
        })
    }

    /// Does to the store what no store does.
    pub(crate) fn spoil(&self, sql: &'static str) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let options = SqliteConnectOptions::new()
            .filename(self.path("store.db"))
            .pragma("ignore_check_constraints", "1")
            .busy_timeout(Duration::from_secs(10));
        runtime.block_on(async {
            let mut connection = SqliteConnection::connect_with(&options).await.unwrap();
            assert!(sqlx::query(sql).execute(&mut connection).await.unwrap().rows_affected() > 0);
        });
    }

    /// Each of the real data's keys has one effect.
    #[track_caller]
    pub(crate) fn assert_each_key_once(&self) {
        let effects = self.effects();
        assert_eq!(effects.len(), 287);
        let twice: Vec<_> = effects.iter().filter(|(_, rows)| **rows > 1).collect();
        assert!(twice.is_empty(), "{twice:?}");
    }

    pub(crate) fn dead_letters(&self) -> Vec<u8> {
        std::fs::read(self.path("in.jsonl.dead.jsonl")).unwrap()
    }
}

/// A process that ends with the test.
pub(crate) struct Running(Option<Child>);

impl Running {
    pub(crate) fn id(&self) -> u32 {
        self.0.as_ref().unwrap().id()
    }

    /// Sends a signal, such as `-STOP`.
    pub(crate) fn signal(&self, signal: &str) {
        let sent = Command::new("kill").args([signal, &self.id().to_string()]).status().unwrap();
        assert!(sent.success(), "{signal}: {sent}");
    }

    /// SIGKILL, to this process alone.
    pub(crate) fn kill(mut self) {
        let mut child = self.0.take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    pub(crate) fn ended(mut self) -> Ended {
        let output = self.0.take().unwrap().wait_with_output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Ended { status: output.status, stdout: text(output.stdout), stderr: text(output.stderr) }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Ended {
    #[track_caller]
    pub(crate) fn exits(self, code: i32) -> Self {
        assert_eq!(self.status.code(), Some(code), "{}{}", self.stdout, self.stderr);
        self
    }

    /// The one line of `--json`, whose counts agree.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        let line = self.stdout.strip_suffix('\n').expect("a line");
        assert!(!line.contains('\n'), "one line alone: {line}");
        let json: Value = serde_json::from_str(line).unwrap();
        let settled: u64 = ["executed", "replayed", "dead", "malformed"].map(|name| count(&json, name)).iter().sum();
        // A delivery whose acknowledgement comes too late is delivered again, and is settled once.
        assert!(count(&json, "deliveries") <= settled, "{line}");
        json
    }

    #[track_caller]
    pub(crate) fn counts<const N: usize>(&self, names: [&str; N]) -> [u64; N] {
        let json = self.json();
        names.map(|name| count(&json, name))
    }
}

#[track_caller]
pub(crate) fn count(json: &Value, name: &str) -> u64 {
    json[name].as_u64().unwrap_or_else(|| panic!("no {name} in {json}"))
}
