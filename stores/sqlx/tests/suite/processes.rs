//! Several tasks and several processes on one file; callers that go away; processes that are killed.

use std::collections::HashSet;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use idempotent_core::{Batch, Claim, ReleaseKind, Settled, Store, StoreErrorKind};
use idempotent_sqlx::SqliteStore;
use sqlx::Row;

use crate::support::{Place, done, held, key, release, request};

const ROLE: &str = "IDEMPOTENT_SQLX_TEST_ROLE";
const FILE: &str = "IDEMPOTENT_SQLX_TEST_FILE";
const OWNER: &str = "IDEMPOTENT_SQLX_TEST_OWNER";

/// Runs the other processes, which execute this binary. Does nothing without a role.
#[tokio::test]
async fn child() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let file = std::env::var(FILE).unwrap();
    let owner: u128 = std::env::var(OWNER).unwrap().parse().unwrap();
    match role.as_str() {
        "open" => {
            ready();
            println!("opened {}", SqliteStore::open(file).await.is_ok());
        }
        "claim" => {
            let store = SqliteStore::open(file).await.unwrap();
            ready();
            let mut granted = 0;
            for index in 0..500 {
                let a = key(&format!("{index}"));
                if let Claim::Acquired(_) = store.claim(&request(&a, owner)).await.unwrap() {
                    granted += 1;
                    assert_eq!(store.complete(&held(&a, owner), &done(b"x")).await.unwrap(), Settled::Done);
                }
            }
            println!("granted {granted}");
        }
        "endless" => {
            let store = SqliteStore::open(file).await.unwrap();
            ready();
            for index in 0_u64.. {
                let keys: Vec<_> = (0..8).map(|part| key(&format!("{owner} {index} {part}"))).collect();
                let requests: Vec<_> = keys.iter().map(|key| request(key, owner)).collect();
                store.claim_all(&requests).await;
                let a = key(&format!("{owner} {index} 0"));
                store.complete(&held(&a, owner), &done(b"x")).await.unwrap();
                println!("completed {index}");
            }
        }
        "write" => {
            ready();
            let error = match SqliteStore::builder(file).create(false).open().await {
                Ok(store) => store.claim(&request(&key("a"), owner)).await.unwrap_err(),
                Err(error) => error,
            };
            println!("refused {:?} {error}", error.kind());
        }
        other => panic!("no role {other}"),
    }
}

/// Waits until the parent lets all of them start.
fn ready() {
    println!("ready");
    std::io::stdin().read_line(&mut String::new()).unwrap();
}

/// Another process; killed when dropped.
struct Other {
    child: Child,
    input: ChildStdin,
    lines: BufReader<ChildStdout>,
}

impl Other {
    fn start(role: &str, file: &Path, owner: u128) -> Self {
        Self::of(Command::new(std::env::current_exe().unwrap()), role, file, owner)
    }

    fn of(mut command: Command, role: &str, file: &Path, owner: u128) -> Self {
        command
            .args(["--exact", "processes::child", "--nocapture"])
            .env(ROLE, role)
            .env(FILE, file)
            .env(OWNER, owner.to_string());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let mut other = Self { child, input, lines: BufReader::new(output) };
        other.line("ready");
        other
    }

    fn go(&mut self) {
        writeln!(self.input).unwrap();
    }

    /// The rest of the next line that has `word` in it; the test harness writes lines of its own.
    fn line(&mut self, word: &str) -> String {
        loop {
            let mut line = String::new();
            assert!(self.lines.read_line(&mut line).unwrap() > 0, "the other process ended before it said {word:?}");
            if let Some((_, rest)) = line.split_once(word) {
                return rest.trim().to_owned();
            }
        }
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test]
async fn two_processes_claim_the_same_500_keys_and_each_is_granted_once() {
    let place = Place::new();
    let mut others = [1, 2].map(|owner| Other::start("claim", &place.path, owner));
    others.iter_mut().for_each(Other::go);
    let granted: Vec<u32> = others.iter_mut().map(|other| other.line("granted").parse().unwrap()).collect();
    assert_eq!(granted.iter().sum::<u32>(), 500, "{granted:?}");
    for mut other in others {
        assert!(other.child.wait().unwrap().success());
    }
    assert_eq!(place.count("SELECT count(*) FROM idempotent_record WHERE state = 2 AND attempt = 1").await, 500);
}

#[tokio::test]
async fn processes_that_open_at_once_migrate_once() {
    let place = Place::new();
    let mut others = [1, 2, 3].map(|owner| Other::start("open", &place.path, owner));
    others.iter_mut().for_each(Other::go);
    for other in &mut others {
        assert_eq!(other.line("opened"), "true");
    }
    assert_eq!(place.count("SELECT count(*) FROM idempotent_record_migrations").await, 3);
}

#[tokio::test]
async fn a_killed_process_leaves_a_usable_file_with_all_it_had_answered() {
    let place = Place::new();
    let mut completed = Vec::new();
    for owner in 1..4 {
        let mut other = Other::start("endless", &place.path, owner);
        other.go();
        for _ in 0..20 {
            completed.push((owner, other.line("completed").parse::<u64>().unwrap()));
        }
        other.child.kill().unwrap();
        other.child.wait().unwrap();
    }
    let store = place.open().await;
    for (owner, index) in completed {
        let claim = store.claim(&request(&key(&format!("{owner} {index} 0")), 99)).await.unwrap();
        assert!(matches!(claim, Claim::Consumed(_)), "{owner} {index}: {claim:?}");
    }
    let check = sqlx::query("PRAGMA integrity_check").fetch_one(&mut place.other().await).await.unwrap();
    assert_eq!(check.get::<&str, _>(0), "ok");
    // A batch is there as a whole or not at all.
    assert_eq!(place.count("SELECT count(*) FROM idempotent_record WHERE fencing > 0").await % 8, 0);
}

/// A transaction that becomes a writing one only later would make one of two batches fail immediately, with any busy
/// timeout.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn batches_of_two_writers_wait_for_each_other_and_grant_each_key_once() {
    let place = Place::new();
    let writers = [place.open().await, place.open().await];
    let claims = writers.into_iter().zip(1..).map(|(store, owner)| {
        tokio::spawn(async move {
            let mut granted = 0;
            for round in 0..60 {
                let requests: Vec<_> = (0..16).map(|part| request(&key(&format!("{round} {part}")), owner)).collect();
                for answer in store.claim_all(&requests).await {
                    granted += usize::from(matches!(answer.unwrap(), Claim::Acquired(_)));
                }
            }
            granted
        })
    });
    let granted = futures_util::future::join_all(claims).await;
    assert_eq!(granted.into_iter().map(Result::unwrap).sum::<usize>(), 60 * 16);
}

/// Lets a future run for some turns, then drops it; says whether it ended before.
async fn dropped_after<F: Future>(turns: u32, future: F) -> bool {
    let yields = async {
        for _ in 0..turns {
            tokio::task::yield_now().await;
            std::thread::yield_now();
        }
    };
    tokio::select! { biased; _ = future => true, () = yields => false }
}

#[tokio::test]
async fn a_dropped_call_leaves_neither_a_transaction_nor_a_connection() {
    let place = Place::new();
    let store = place.open().await;
    let mut ended = HashSet::new();
    for turns in 0..400 {
        let keys: Vec<_> = (0..8).map(|part| key(&format!("{turns} {part}"))).collect();
        let requests: Vec<_> = keys.iter().map(|key| request(key, 1)).collect();
        ended.insert(dropped_after(turns * 5 % 700, store.claim_all(&requests)).await);
        ended.insert(dropped_after(turns % 40, store.claim(&request(&key("one"), turns.into()))).await);
        ended.insert(
            dropped_after(turns % 40, store.release(&held(&key("one"), 1), &release(ReleaseKind::Vacate))).await,
        );
        ended.insert(dropped_after(turns % 40, store.peek(&key("one"))).await);
        if turns % 20 == 0 {
            // Another process is not kept waiting, for nothing is asked of the store meanwhile.
            let mut other = place.other().await;
            sqlx::raw_sql("BEGIN IMMEDIATE; ROLLBACK").execute(&mut other).await.unwrap();
        }
        // The next write waits for a transaction that has begun.
        store.claim(&request(&key(&format!("behind {turns}")), 1)).await.unwrap();
        let mut there = 0;
        for key in &keys {
            there += usize::from(store.peek(key).await.unwrap().is_some());
        }
        if there != 0 && there != 8 {
            panic!("{there} of a batch of 8 are there");
        }
    }
    assert_eq!(ended.len(), 2, "some ended and some were dropped");
    let last = store.claim(&request(&key("last"), 1)).await.unwrap();
    assert!(matches!(last, Claim::Acquired(_)));
}

#[tokio::test]
async fn a_lock_of_another_process_is_waited_for_and_then_named() {
    let place = Place::new();
    let (store, a) = (place.builder().busy_timeout(Duration::from_millis(30)).open().await.unwrap(), key("a"));
    store.claim(&request(&a, 1)).await.unwrap();
    let mut other = place.other().await;
    sqlx::raw_sql("BEGIN IMMEDIATE").execute(&mut other).await.unwrap();
    let errors = [
        store.claim(&request(&key("b"), 2)).await.unwrap_err(),
        store.complete(&held(&a, 1), &done(b"x")).await.unwrap_err(),
        store.claim_all(&[request(&key("b"), 2)]).await.remove(0).unwrap_err(),
    ];
    for error in errors {
        assert_eq!(error.kind(), StoreErrorKind::NotApplied, "{error}");
        for word in ["locked by another process", "busy_timeout (30ms)", "records.db"] {
            assert!(error.to_string().contains(word), "{error}");
        }
    }
    // What only reads is answered meanwhile, a duplicate's claim too.
    assert!(store.peek(&a).await.unwrap().is_some());
    assert!(matches!(store.claim(&request(&a, 2)).await.unwrap(), Claim::InFlight(_)));
    sqlx::raw_sql("ROLLBACK").execute(&mut other).await.unwrap();
    assert_eq!(store.complete(&held(&a, 1), &done(b"x")).await.unwrap(), Settled::Done);
}

#[tokio::test]
async fn a_queue_that_does_not_move_is_left_with_a_reason() {
    let place = Place::new();
    let store = place.builder().busy_timeout(Duration::from_millis(600)).open().await.unwrap();
    let mut other = place.other().await;
    sqlx::raw_sql("BEGIN IMMEDIATE").execute(&mut other).await.unwrap();
    // Batches wait for the lock in sequence. Later single calls share one wait.
    let batches = (0..4).map(|index| {
        let (store, request) = (store.clone(), request(&key(&format!("{index}")), 1));
        async move { store.claim_all(&[request]).await.remove(0).unwrap_err() }
    });
    let singles = (4..8).map(|index| {
        let (store, request) = (store.clone(), request(&key(&format!("{index}")), 1));
        async move { store.claim(&request).await.unwrap_err() }
    });
    let batches = futures_util::future::join_all(batches);
    let (mut errors, singles) = tokio::join!(batches, futures_util::future::join_all(singles));
    errors.extend(singles);
    assert!(errors.iter().all(|error| error.kind() == StoreErrorKind::NotApplied));
    assert!(errors.iter().any(|error| error.to_string().contains("in use for 1.2s")), "{errors:?}");
    sqlx::raw_sql("ROLLBACK").execute(&mut other).await.unwrap();
    assert!(matches!(store.claim(&request(&key("a"), 1)).await, Ok(Claim::Acquired(_))));
}

#[cfg(unix)]
#[tokio::test]
async fn a_read_only_file_is_denied_with_path_and_remedy() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    use std::os::unix::process::CommandExt;
    let place = Place::new();
    place.open().await;
    // A checkpoint leaves a single file, which a reader can open alone.
    place.leave_wal().await;
    let permit = |path: &Path, mode| std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    // Root can write to every file. The other process therefore runs as the user nobody, with a copy of the program.
    let program = place.folder.path().join("program");
    std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    permit(&program, 0o555);
    permit(&place.path, 0o444);
    permit(place.folder.path(), 0o555);
    let mut command = Command::new(&program);
    if std::fs::metadata("/proc/self").unwrap().uid() == 0 {
        command.uid(65_534);
    }
    let mut writer = Other::of(command, "write", &place.path, 1);
    writer.go();
    let refused = writer.line("refused");
    permit(place.folder.path(), 0o755);
    assert!(refused.starts_with("Denied"), "{refused}");
    for word in ["records.db", "read-only", "must be writable"] {
        assert!(refused.contains(word), "{word:?} is not in: {refused}");
    }
}
