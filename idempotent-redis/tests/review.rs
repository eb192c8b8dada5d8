//! What a review found. Each fails today.
#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use idempotent_core::{
    Claim, ClaimRequest, Completion, Fencing, Held, Key, Micros, OnExpiry, OwnerToken, Record, Settled, State,
    StateKind, Store, StoreErrorKind, protocol,
};
use idempotent_redis::{CacheOptions, Durability, RedisStore};
use idempotent_testkit::servers::{RedisReplicas, RedisServer};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::tcp::OwnedReadHalf;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, mpsc};

const HOUR: Duration = Duration::from_secs(3_600);

fn ask(number: u128, owner: u128) -> ClaimRequest {
    ClaimRequest {
        key: Key::from_parts("idempotent:mq:a", number),
        owner: OwnerToken(owner),
        lease: Duration::from_secs(60),
        fingerprint: None,
        max_attempts: 1,
        on_expiry: OnExpiry::Takeover,
        memory: HOUR,
        display: None,
    }
}

// ---- servers that say what a test wants

#[derive(Default)]
struct Says {
    primary: AtomicU16,
    epoch: AtomicU64,
    /// Before the first word on a new connection, ms.
    hesitates: AtomicU64,
    holds_role: AtomicBool,
    role_asked: AtomicUsize,
    role_said: Notify,
    scripts: AtomicUsize,
    connections: Mutex<Vec<mpsc::UnboundedSender<Option<String>>>>,
}

struct Fake {
    port: u16,
    says: Arc<Says>,
}

impl Fake {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let says = Arc::<Says>::default();
        let kept = says.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, kept.clone()));
            }
        });
        Self { port, says }
    }

    async fn sentinel(primary: &Fake, epoch: u64) -> Self {
        let fake = Self::start().await;
        fake.names(primary, epoch);
        fake
    }

    fn names(&self, primary: &Fake, epoch: u64) {
        self.says.primary.store(primary.port, Ordering::SeqCst);
        self.says.epoch.store(epoch, Ordering::SeqCst);
    }

    /// To all that listen, as a sentinel tells it.
    fn tells_of_switch(&self, old: &Fake, new: &Fake) {
        let told = format!("main 127.0.0.1 {} 127.0.0.1 {}", old.port, new.port);
        let push = format!(">3\r\n$7\r\nmessage\r\n$14\r\n+switch-master\r\n${}\r\n{told}\r\n", told.len());
        for connection in &*self.says.connections.lock().unwrap() {
            let _ = connection.send(Some(push.clone()));
        }
    }

    fn cuts_all(&self) {
        for connection in self.says.connections.lock().unwrap().drain(..) {
            let _ = connection.send(None);
        }
    }

    fn scripts(&self) -> usize {
        self.says.scripts.load(Ordering::SeqCst)
    }
}

const INFO: &str = "redis_version:7.0.15\r\nmaxmemory:0\r\nmaxmemory_policy:noeviction\r\n";

async fn serve(stream: TcpStream, says: Arc<Says>) {
    tokio::time::sleep(Duration::from_millis(says.hesitates.load(Ordering::SeqCst))).await;
    let (read, mut write) = stream.into_split();
    let (tx, mut rx) = mpsc::unbounded_channel::<Option<String>>();
    says.connections.lock().unwrap().push(tx.clone());
    tokio::spawn(async move {
        while let Some(Some(text)) = rx.recv().await {
            if write.write_all(text.as_bytes()).await.is_err() {
                return;
            }
        }
    });
    let mut read = BufReader::new(read);
    while let Some(words) = command(&mut read).await {
        let said = match (words[0].to_ascii_uppercase().as_str(), words.get(1).map(String::as_str)) {
            ("HELLO", _) => "%1\r\n$5\r\nproto\r\n:3\r\n".to_owned(),
            ("SUBSCRIBE", _) => (1..words.len())
                .map(|at| format!(">3\r\n$9\r\nsubscribe\r\n${}\r\n{}\r\n:{at}\r\n", words[at].len(), words[at]))
                .collect(),
            ("SENTINEL", Some("get-master-addr-by-name")) => {
                format!("*2\r\n$9\r\n127.0.0.1\r\n$5\r\n{:05}\r\n", says.primary.load(Ordering::SeqCst))
            }
            ("SENTINEL", Some("master")) => {
                format!("*2\r\n$12\r\nconfig-epoch\r\n$1\r\n{}\r\n", says.epoch.load(Ordering::SeqCst))
            }
            ("SENTINEL", _) => "*0\r\n".to_owned(),
            ("ROLE", _) => {
                says.role_asked.fetch_add(1, Ordering::SeqCst);
                if says.holds_role.load(Ordering::SeqCst) {
                    says.role_said.notified().await;
                }
                "*3\r\n$6\r\nmaster\r\n:0\r\n*0\r\n".to_owned()
            }
            ("GET", _) => "$1\r\n1\r\n".to_owned(),
            ("INFO", _) => format!("${}\r\n{INFO}\r\n", INFO.len()),
            ("EVALSHA", _) => {
                says.scripts.fetch_add(1, Ordering::SeqCst);
                "*1\r\n:1795187175068457\r\n".to_owned()
            }
            _ => "+PONG\r\n".to_owned(),
        };
        if tx.send(Some(said)).is_err() {
            return;
        }
    }
}

async fn command(stream: &mut BufReader<OwnedReadHalf>) -> Option<Vec<String>> {
    let mut words = Vec::new();
    for _ in 0..number(stream).await? {
        let mut word = vec![0; number(stream).await? + 2];
        stream.read_exact(&mut word).await.ok()?;
        word.truncate(word.len() - 2);
        words.push(String::from_utf8_lossy(&word).into_owned());
    }
    Some(words)
}

async fn number(stream: &mut BufReader<OwnedReadHalf>) -> Option<usize> {
    let mut line = String::new();
    stream.read_line(&mut line).await.ok()?;
    line.trim_end().get(1..)?.parse().ok()
}

async fn until(what: &str, so: impl Fn() -> bool) {
    let looks = async {
        while !so() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), looks).await.unwrap_or_else(|_| panic!("still not: {what}"));
}

// ---- sentinel

/// `accept` notes the primary that is named by then, not the one it has connected to.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_switch_told_while_the_old_primary_is_being_connected_is_heeded() {
    let (old, new) = (Fake::start().await, Fake::start().await);
    let sentinel = Fake::sentinel(&old, 1).await;
    let url = format!("redis+sentinel://127.0.0.1:{}/main", sentinel.port);
    let store = RedisStore::builder(url).cache(None).connect().await.unwrap();
    // The connection breaks, and the next one takes its time to say its role.
    old.says.holds_role.store(true, Ordering::SeqCst);
    let roles = old.says.role_asked.load(Ordering::SeqCst);
    old.cuts_all();
    let claiming = store.clone();
    let claim = tokio::spawn(async move {
        loop {
            if let Ok(claim) = claiming.claim(&ask(1, 1)).await {
                return claim;
            }
        }
    });
    until("it asks the old one's role", || old.says.role_asked.load(Ordering::SeqCst) > roles).await;
    let before = old.scripts();
    sentinel.names(&new, 2);
    sentinel.tells_of_switch(&old, &new);
    tokio::time::sleep(Duration::from_millis(500)).await;
    old.says.holds_role.store(false, Ordering::SeqCst);
    old.says.role_said.notify_one();
    let claim = tokio::time::timeout(Duration::from_secs(30), claim).await.unwrap().unwrap();
    assert!(matches!(claim, Claim::Acquired(_)), "{claim:?}");
    assert_eq!(
        old.scripts() - before,
        0,
        "half a second after the sentinel told of the switch the old one was written to"
    );
    // And for good: nothing closes it any more.
}

/// The epoch is not raised by what is told: a sentinel that is behind passes for good.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn behind_a_switch_that_was_told_a_sentinel_that_has_not_heard_of_it_is_not_believed() {
    let (old, new) = (Fake::start().await, Fake::start().await);
    let (knows, behind) = (Fake::sentinel(&old, 1).await, Fake::sentinel(&old, 1).await);
    let url = format!("redis+sentinel://127.0.0.1:{},127.0.0.1:{}/main", knows.port, behind.port);
    let store = RedisStore::builder(url).cache(None).connect().await.unwrap();
    let before = (old.scripts(), new.scripts());
    knows.names(&new, 2);
    // Busy with the failover, or farther away than the other one.
    knows.says.hesitates.store(300, Ordering::SeqCst);
    knows.tells_of_switch(&old, &new);
    tokio::time::sleep(Duration::from_millis(500)).await;
    let claim = store.claim(&ask(1, 1)).await;
    assert!(matches!(claim, Ok(Claim::Acquired(_))), "{claim:?}");
    assert_eq!((old.scripts() - before.0, new.scripts() - before.1), (0, 1), "(old, new)");
}

/// Sentinels that were set up anew begin with epoch 0; one more that is known does not answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sentinels_that_count_from_nothing_again_are_believed_in_the_end() {
    let primary = Fake::start().await;
    let (one, other) = (Fake::sentinel(&primary, 5).await, Fake::sentinel(&primary, 5).await);
    let url = format!("redis+sentinel://127.0.0.1:{},127.0.0.1:{}/main", one.port, other.port);
    let patience = Duration::from_millis(500);
    let store = RedisStore::builder(url).cache(None).connect_timeout(patience).connect().await.unwrap();
    one.names(&primary, 0);
    other.says.hesitates.store(600_000, Ordering::SeqCst);
    primary.cuts_all();
    let claims = async {
        while store.claim(&ask(1, 1)).await.is_err() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let ended = tokio::time::timeout(Duration::from_secs(20), claims).await;
    assert!(ended.is_ok(), "a sentinel answers at once, and so does the primary that it names");
}

// ---- scripts without flags

/// The script runs there, and its write is refused: nobody looks for another primary.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_primary_that_became_a_replica_is_left_also_where_scripts_have_no_flags() {
    let group = RedisReplicas::start(1);
    let (old, new) = (group.primary(), group.replica());
    let at = |port: u16| Fake { port, says: Arc::default() };
    let sentinel = Fake::sentinel(&at(old.port()), 1).await;
    let url = format!("redis+sentinel://127.0.0.1:{}/main", sentinel.port);
    for plain in [false, true] {
        let builder = RedisStore::builder(&url).cache(None);
        let store = if plain { builder.plain_scripts() } else { builder }.connect().await.unwrap();
        new.command(&["REPLICAOF", "NO", "ONE"]);
        old.command(&["REPLICAOF", "127.0.0.1", &new.port().to_string()]);
        sentinel.names(&at(new.port()), 2);
        let claim = store.claim(&ask(u128::from(plain), 1)).await;
        assert!(matches!(claim, Ok(Claim::Acquired(_))), "plain: {plain}: {claim:?}");
        old.command(&["REPLICAOF", "NO", "ONE"]);
        new.command(&["REPLICAOF", "127.0.0.1", &old.port().to_string()]);
        sentinel.names(&at(old.port()), 3);
    }
}

/// As Redis 6.2 says it inside a script: `luaPushError` puts the place before the server's words.
#[tokio::test]
async fn what_6_2_refuses_inside_a_script_is_not_applied() {
    let server = RedisServer::start();
    for words in [
        "NOREPLICAS Not enough good replicas to write.",
        "READONLY You can't write against a read only replica.",
        "MISCONF Redis is configured to save RDB snapshots, but it is currently not able to persist on disk.",
        "OOM command not allowed when used memory > 'maxmemory'.",
    ] {
        let says = move |text: &str| {
            if text.contains("-- Claims. ARGV") {
                format!("return {{1, 1, \"E@user_script: 67: -{words}\"}}")
            } else {
                text.to_owned()
            }
        };
        let store =
            RedisStore::builder(server.url()).cache(None).plain_scripts().edit_scripts(says).connect().await.unwrap();
        let error = store.claim(&ask(1, 1)).await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::NotApplied, "{error}");
    }
}

#[tokio::test]
async fn a_server_with_too_many_clients_is_one_to_try_again() {
    let server = RedisServer::builder().arg("--maxclients").arg("8").start();
    let mut others = Vec::new();
    for _ in 0..8 {
        others.push(TcpStream::connect(server.address()).await.unwrap());
    }
    let error = RedisStore::connect(server.url()).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::NotApplied, "{error}");
}

// ---- durability

async fn waiting(url: String, millis: u64) -> RedisStore {
    let durability = Durability::wait(1, Duration::from_millis(millis));
    RedisStore::builder(url).cache(None).durability(durability).connect().await.unwrap()
}

/// Applied, and said not to be: nobody will take it back.
#[tokio::test]
async fn a_claim_that_could_not_be_given_back_is_not_said_to_be_not_applied() {
    let server = RedisServer::start();
    let refuses = |text: &str| {
        if text.contains("Ends attempts that did not succeed") {
            "#!lua\nreturn redis.error_reply('NOREPLICAS Not enough good replicas to write.')".to_owned()
        } else {
            text.to_owned()
        }
    };
    let durability = Durability::wait(1, Duration::from_millis(20));
    let store = RedisStore::builder(server.url())
        .cache(None)
        .durability(durability)
        .edit_scripts(refuses)
        .connect()
        .await
        .unwrap();
    let request = ask(1, 1);
    let error = store.claim(&request).await.unwrap_err();
    let state = store.peek(&request.key).await.unwrap().map_or(StateKind::Absent, |record| record.state.kind());
    assert!(
        error.kind() != StoreErrorKind::NotApplied || state == StateKind::Absent,
        "{:?} and yet {state:?}: {error}",
        error.kind()
    );
}

/// Renewing it to see how far it got fails: the claim itself stands.
#[tokio::test]
async fn a_claim_asked_again_that_stands_is_not_said_to_be_not_applied() {
    let group = RedisReplicas::start(1);
    let refuses = |text: &str| {
        if text.contains("-- Renews leases") {
            "#!lua\nreturn redis.error_reply('NOREPLICAS Not enough good replicas to write.')".to_owned()
        } else {
            text.to_owned()
        }
    };
    let plain = RedisStore::builder(group.url()).cache(None).connect().await.unwrap();
    let request = ask(1, 1);
    assert!(matches!(plain.claim(&request).await, Ok(Claim::Acquired(_))));
    let durability = Durability::wait(1, Duration::from_secs(30));
    let store = RedisStore::builder(group.url())
        .cache(None)
        .durability(durability)
        .edit_scripts(refuses)
        .connect()
        .await
        .unwrap();
    let error = store.claim(&request).await.unwrap_err();
    let state = plain.peek(&request.key).await.unwrap().map_or(StateKind::Absent, |record| record.state.kind());
    assert!(
        error.kind() != StoreErrorKind::NotApplied || state == StateKind::Absent,
        "{:?} and yet {state:?}: {error}",
        error.kind()
    );
}

/// The mirror of what claims do: the answer was lost, and a new connection has nothing to wait for.
#[tokio::test]
async fn a_completion_asked_again_over_another_connection_is_not_taken_for_durable() {
    let group = RedisReplicas::start(1);
    let plain = RedisStore::builder(group.url()).cache(None).connect().await.unwrap();
    let request = ask(1, 1);
    let Claim::Acquired(grant) = plain.claim(&request).await.unwrap() else { panic!("not granted") };
    let held = Held { key: request.key.clone(), owner: request.owner, fencing: Some(grant.fencing) };
    group.replica().pause();
    let done = Completion { value: None, retain: HOUR };
    assert_eq!(plain.complete(&held, &done).await.unwrap(), Settled::Done);
    let store = waiting(group.url(), 50).await;
    assert_eq!(store.complete(&held, &done).await.unwrap(), Settled::Done);
    let counted = store.counts().completions_not_replicated;
    group.replica().resume();
    assert_eq!(counted, 1, "the replica has nothing of it, and nobody is warned");
}

/// Each batch waits its own time, one after the other, on one connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn batches_that_wait_for_a_dead_replica_are_refused_and_not_left_unknown() {
    let server = RedisServer::start();
    let store = waiting(server.url(), 300).await;
    let batches = (0..16_u128).map(|at| {
        let store = store.clone();
        tokio::spawn(async move {
            let request = ask(at, 1);
            let said = store.abilities().batch.unwrap().claim_all(std::slice::from_ref(&request)).await;
            said.into_iter().next().unwrap().unwrap_err().kind()
        })
    });
    let mut kinds = Vec::new();
    for batch in batches.collect::<Vec<_>>() {
        kinds.push(batch.await.unwrap());
    }
    let unknown = kinds.iter().filter(|kind| **kind == StoreErrorKind::Ambiguous).count();
    assert_eq!(unknown, 0, "of 16, with a server that answers all the time");
}

// ---- cache

#[tokio::test]
async fn an_age_without_a_limit_is_one() {
    let server = RedisServer::start();
    let mut options = CacheOptions::default();
    options.max_age = Duration::MAX;
    let store = RedisStore::builder(server.url()).cache(options).connect().await.unwrap();
    let request = ask(1, 1);
    let Claim::Acquired(grant) = store.claim(&request).await.unwrap() else { panic!("not granted") };
    let held = Held { key: request.key.clone(), owner: request.owner, fencing: Some(grant.fencing) };
    let done = Completion { value: None, retain: Duration::MAX };
    assert_eq!(store.complete(&held, &done).await.unwrap(), Settled::Done);
}

// ---- browse

#[tokio::test]
async fn a_listing_is_not_refused_for_what_lies_in_another_namespace() {
    let server = RedisServer::start();
    let all = RedisStore::builder(server.url()).cache(None).connect().await.unwrap();
    let theirs = ClaimRequest { key: Key::from_parts("other:mq:a", 7), ..ask(7, 1) };
    assert!(matches!(all.claim(&theirs).await, Ok(Claim::Acquired(_))));
    let rule = "ACL SETUSER worker on >secret resetchannels &idempotent:* ~idempotent:* +@connection +del +eval +evalsha \
                +get +getrange +info +pexpiretime +pttl +publish +scan +set +setrange +subscribe +time";
    server.cli(&rule.split_whitespace().collect::<Vec<_>>());
    let url = server.url().replace("redis://", "redis://worker:secret@");
    let store = RedisStore::builder(url).cache(None).connect().await.unwrap();
    assert!(matches!(store.claim(&ask(1, 1)).await, Ok(Claim::Acquired(_))));
    let page = store.abilities().browse.unwrap().browse(None, 100).await;
    assert_eq!(page.map(|page| page.entries.len()).map_err(|error| error.to_string()), Ok(1));
}

// ---- runtimes

/// The runtime that it was opened on lives, and nobody drives it.
#[test]
fn a_call_ends_in_its_time_whichever_runtime_the_connection_was_made_on() {
    let server = RedisServer::start();
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (first, second) = (runtime(), runtime());
    let store = first.block_on(RedisStore::builder(server.url()).cache(None).connect()).unwrap();
    let ended =
        second.block_on(async { tokio::time::timeout(Duration::from_secs(20), store.claim(&ask(1, 1))).await.is_ok() });
    assert!(ended, "no answer and no error in ten times the response timeout");
    drop(first);
}

// ---- clock

/// The end is never shortened, and the write is now: more than 31 days apart.
#[test]
fn a_lease_renewed_behind_a_clock_that_was_set_back_by_months_can_still_be_completed() {
    const DAY: u64 = 24 * 3_600_000_000;
    let now = Micros(1_795_187_175_068_457);
    let record = Record {
        fencing: Fencing(now.0),
        attempt: 1,
        fingerprint: None,
        state: State::Consuming { owner: OwnerToken(1), until: Micros(now.0 + 30_000_000), taken_over: None },
        expires_at: Micros(now.0 + DAY),
        first_seen: now,
        updated_at: now,
        display: None,
    };
    let held = Held { key: ask(1, 1).key, owner: OwnerToken(1), fencing: Some(record.fencing) };
    let back = Micros(now.0 - 40 * DAY);
    let (settled, write) = protocol::renew(Some(&record), &held, Duration::from_secs(30), back);
    assert_eq!(settled, Settled::Done);
    let protocol::Write::Put(renewed) = write else { panic!("not written") };
    renewed.check().unwrap();
}

/// What is refused for a moment is not insisted on, and the next delivery runs the handler again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_succeeded_while_the_server_had_too_many_clients_is_not_run_again() {
    use idempotent_core::{Auto, Call, Executor, Handler, Identity, Json, Policy, Rejection, Scene};
    let server = Arc::new(RedisServer::builder().arg("--maxclients").arg("8").start());
    let store = RedisStore::builder(server.url()).cache(None).connect().await.unwrap();
    let executor = Executor::new(store);
    let runs = Arc::new(AtomicUsize::new(0));
    let mut told = Vec::new();
    for _ in 0..2 {
        let (server, runs) = (server.clone(), runs.clone());
        let handler = Handler::<Auto, Json, _, _>::new(move || async move {
            if runs.fetch_add(1, Ordering::SeqCst) == 0 {
                // A burst of other clients, for half a second; and our connection breaks.
                server.command(&["CLIENT", "KILL", "TYPE", "pubsub"]);
                let mut others = Vec::new();
                for _ in 0..12 {
                    others.push(TcpStream::connect(server.address()).await.unwrap());
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
                tokio::spawn(async move {
                    tokio::time::sleep(Duration::from_millis(500)).await;
                    drop(others);
                });
            }
            Ok::<u32, Rejection>(1)
        });
        let policy = Policy::new().lease(Duration::from_secs(6));
        told.push(format!(
            "{:?}",
            executor.run(Call::new(Identity::new(Scene::Mq, "a", "1")).policy(policy), handler).await
        ));
        // The next delivery, when the lease is over.
        tokio::time::sleep(Duration::from_secs(8)).await;
    }
    assert_eq!(runs.load(Ordering::SeqCst), 1, "for half a second the server took no connection: {told:#?}");
}
