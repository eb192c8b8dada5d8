//! Worker processes that die: this test binary starts itself as the worker.
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};

use idempotent_core::{Call, DefaultReply, Executor, Handler, Json, Lease, Outcome, Policy, Rejection, StateKind};
use idempotent_harness::servers::RedisServer;
use idempotent_redis::RedisStore;

use crate::support::runs::{AppError, Job, Worker, assert_in_flight, id, lease_end, record, secs};
use crate::support::{open_without_cache, until};

fn policy() -> Policy {
    Policy::new().lease(secs(3)).max_retries(2)
}

/// The worker process, which does nothing when run as a test. Reports the start of its handler and then follows
/// instructions.
#[test]
fn worker() {
    let (Ok(url), Ok(folder), Ok(how)) = (var("URL"), var("FOLDER"), var("HOW")) else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let executor = Executor::new(RedisStore::connect(url).await.unwrap());
        let handler = Handler::<DefaultReply, Json, _, _>::new(move || async move {
            let number = Lease::current().unwrap().fencing().0;
            std::fs::write(Path::new(&folder).join("part"), number.to_string()).unwrap();
            std::fs::rename(Path::new(&folder).join("part"), Path::new(&folder).join("begun")).unwrap();
            if how == "aborts" {
                std::process::abort();
            }
            std::future::pending::<Result<u32, Rejection>>().await
        });
        executor.run(Call::new(id("k")).policy(policy()), handler).await.unwrap_err();
    });
}

fn var(name: &str) -> Result<String, std::env::VarError> {
    std::env::var(format!("IDEMPOTENT_CRASH_{name}"))
}

fn start(server: &RedisServer, folder: &Path, how: &str) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    let worker = concat!(module_path!(), "::worker").split_once("::").unwrap().1;
    command.args(["--exact", worker]).env("IDEMPOTENT_CRASH_URL", server.url());
    command.env("IDEMPOTENT_CRASH_FOLDER", folder).env("IDEMPOTENT_CRASH_HOW", how);
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

fn ended(mut child: Child) -> ExitStatus {
    child.wait().unwrap()
}

#[tokio::test]
async fn a_killed_worker_is_taken_over_when_its_lease_expires() {
    let server = RedisServer::start();
    let (store, folder) = (open_without_cache(&server).await, tempfile::tempdir().unwrap());
    let mut child = start(&server, folder.path(), "stays");
    until("its handler has begun", async || folder.path().join("begun").exists()).await;
    let number: u64 = std::fs::read_to_string(folder.path().join("begun")).unwrap().parse().unwrap();
    child.kill().unwrap();
    assert_eq!(ended(child).code(), None, "by a signal");
    let end = lease_end(&store, "k").await;
    let (worker, job) = (Worker::new(store.clone(), policy()), Job::quick());
    assert_in_flight(&worker.outcome("k", &job).await);
    let (outcome, _) = worker.redeliver("k", &job).await;
    assert_eq!((outcome, job.attempts()), (Outcome::Ran, vec![2]));
    let again = job.fencing()[0].0;
    assert!(again > number && again >= end, "{} µs early", end - again);
    assert_eq!(record(&store, "k").await.unwrap().state.kind(), StateKind::Consumed);
}

/// Attempts are counted at the claim, so a message cannot kill its process forever.
#[tokio::test]
async fn a_handler_that_kills_its_process_is_dead_lettered_after_three_attempts() {
    let server = RedisServer::start();
    let (store, folder) = (open_without_cache(&server).await, tempfile::tempdir().unwrap());
    let mut deaths = 0;
    until("it is buried", async || {
        // During the dead worker's lease, the next process is deferred and survives.
        deaths += usize::from(ended(start(&server, folder.path(), "aborts")).code().is_none());
        assert!(deaths <= 3, "it would kill processes for ever");
        record(&store, "k").await.unwrap().state.kind() == StateKind::Dead
    })
    .await;
    assert_eq!(deaths, 3, "exactly");
    let (worker, job) = (Worker::new(store, policy()), Job::quick());
    let (outcome, answer) = worker.deliver("k", &job).await;
    assert!(matches!(outcome, Outcome::Dead { .. }), "{outcome:?}");
    let Err(AppError::Idempotent(Rejection::Dead { attempts: 3, error, .. })) = answer else { panic!("{answer:?}") };
    assert!(error.contains("crashed"), "{error}");
    assert_eq!(job.runs(), 0);
}
