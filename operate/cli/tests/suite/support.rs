//! The process of the command line, and stores with records in every state.
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::time::Duration;

use idempotent::reply::DefaultReply;
use idempotent::sqlx::SqlitePool;
use idempotent::store::{Claim, ClaimRequest, OnExpiry, OwnerToken};
use idempotent::{Call, Executor, Handler, Identity, Json, Policy, Rejection, Scene, Store};
use serde_json::Value;
use tempfile::TempDir;

/// A finished command.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ran {
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

/// Returns a command without the environment of the user. What `cargo xtask mutants` sets remains.
pub(crate) fn bare(program: &str) -> Command {
    let mutants = std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("MUTANT"));
    let mut command = Command::new(program);
    command.env_clear().envs(mutants);
    command
}

/// Returns the command line with a store and arguments, without a terminal and without settings of the environment.
pub(crate) fn command(store: &str, arguments: &[&str]) -> Command {
    let mut command = bare(env!("CARGO_BIN_EXE_idempotent"));
    command.env("IDEMPOTENT_STORE", store).env("USER", "ann").args(arguments).stdin(Stdio::null());
    command
}

/// Returns the command line without a store. The author of its changes is `tester`.
pub(crate) fn command_without_store(arguments: &[&str]) -> Command {
    let mut command = bare(env!("CARGO_BIN_EXE_idempotent"));
    command.env("IDEMPOTENT_BY", "tester").args(arguments).stdin(Stdio::null());
    command
}

pub(crate) fn run_without_store(arguments: &[&str]) -> Ran {
    ran(command_without_store(arguments).output().unwrap())
}

/// Runs the command line with a store and arguments.
pub(crate) fn run(store: &str, arguments: &[&str]) -> Ran {
    ran(command(store, arguments).output().unwrap())
}

pub(crate) fn ran(output: Output) -> Ran {
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ran { code: output.status.code().unwrap(), out: text(output.stdout), err: text(output.stderr) }
}

/// Runs a command that must succeed, and returns its output.
pub(crate) fn done(store: &str, arguments: &[&str]) -> String {
    let ran = run(store, arguments);
    assert_eq!(ran.code, 0, "{arguments:?}: {ran:?}");
    ran.out
}

/// Returns a folder, and the URL of an SQLite file in it, which does not exist yet.
pub(crate) fn sqlite_url() -> (TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", folder.path().join("records.db").display());
    (folder, url)
}

/// Returns an empty SQLite database for queues and outboxes, with its folder and its URL.
pub(crate) async fn sqlite_pool() -> (TempDir, String, SqlitePool) {
    let (folder, url) = sqlite_url();
    let pool = SqlitePool::connect(&format!("{url}?mode=rwc")).await.unwrap();
    (folder, url, pool)
}

/// Returns the storage key of an order.
pub(crate) fn key(order: &str) -> String {
    Identity::new(Scene::Mq, "orders", order).key("idempotent").unwrap().as_str().to_owned()
}

/// Writes the records `paid` (consumed with a result), `lost` (failed), `poison` (dead) and `held` (consuming).
pub(crate) async fn fill(store: &Arc<dyn Store>) {
    let executor = Executor::new(store.clone());
    for (order, policy) in [
        ("paid", Policy::new()),
        ("lost", Policy::new()),
        // One attempt: the first failure is the last one.
        ("poison", Policy::new().max_retries(0)),
    ] {
        let handler = Handler::<DefaultReply, Json, _, _>::new(async || match order {
            "paid" => Ok("secret receipt".to_owned()),
            _ => Err(Rejection::Mismatch),
        });
        let handler = if order == "lost" { handler.permanent(|_| true) } else { handler };
        let call = Call::new(Identity::new(Scene::Mq, "orders", order)).policy(policy);
        assert_eq!(executor.run(call, handler).await.is_ok(), order == "paid");
    }
    let request = ClaimRequest {
        key: Identity::new(Scene::Mq, "orders", "held").key("idempotent").unwrap(),
        owner: OwnerToken(0x9f3c_02aa_0000_0000_0000_0000_0000_0001),
        lease: Duration::from_secs(600),
        fingerprint: None,
        max_attempts: 0,
        on_expiry: OnExpiry::Takeover,
        retention: Duration::from_secs(600),
        display: Some("order \u{1b}[31mheld\u{202e}".into()),
    };
    assert!(matches!(store.claim(&request).await.unwrap(), Claim::Acquired(_)));
}
