//! The example `apalis`, from outside: its queue is on a private Redis, and its effects on a private PostgreSQL.
use idempotent_harness::proxy::{Fault, Proxy};
use idempotent_harness::servers::{PostgresServer, RedisServer, Value};
use sqlx::{Connection, PgConnection};

use crate::example::{Running, run};
use crate::wait::until;

const ORDER: &str = r#"{"number": 1, "cents": 500}"#;

struct Shop {
    queue: RedisServer,
    database: PostgresServer,
}

impl Shop {
    fn start() -> Self {
        Self { queue: RedisServer::start(), database: PostgresServer::start() }
    }

    fn worker(&self) -> Running {
        Running::start("apalis", &[&self.queue.url(), &self.database.url()])
    }

    fn push(&self, body: &str) {
        run("apalis", &[&self.queue.url(), &self.database.url(), body]);
    }

    /// Returns the ids of the tasks in the set `done` or `dead` of apalis.
    fn tasks(&self, set: &str) -> Vec<String> {
        self.queue.command(&["SMEMBERS", &format!("orders:{set}")]).items().iter().map(Value::text).collect()
    }

    /// Returns the status, the result and the attempts of a task.
    fn task(&self, id: &str) -> [String; 3] {
        let key = format!("orders:meta:{id}");
        ["status", "result", "attempts"].map(|field| self.queue.command(&["HGET", &key, field]).text())
    }

    /// Waits until this number of tasks are done. Returns them.
    fn done(&self, count: usize) -> Vec<[String; 3]> {
        until("the tasks are done", || self.tasks("done").len() == count);
        self.tasks("done").iter().map(|id| self.task(id)).collect()
    }

    /// Returns the charges, as order and receipt.
    fn charges(&self) -> String {
        self.database
            .psql("postgres", "SELECT string_agg(number || ': ' || receipt, ', ' ORDER BY receipt) FROM charges")
    }

    fn consumed(&self) -> String {
        self.database.psql("postgres", "SELECT count(*) FROM idempotent_record WHERE state = 2")
    }
}

#[test]
fn an_order_is_charged_once_if_its_task_runs_twice_or_is_sent_twice() {
    let shop = Shop::start();
    shop.push(ORDER);
    let mut worker = shop.worker();
    assert_eq!(worker.says(2), ["order 1: charging", "order 1: receipt 1"]);
    assert_eq!(shop.done(1), [["Done", r#"{"Ok":1}"#, "1"]]);

    let id = shop.tasks("done").remove(0);
    shop.queue.command(&["DEL", "orders:done"]);
    shop.queue.command(&["RPUSH", "orders:active", &id]);
    assert_eq!(worker.says(1), ["order 1: receipt 1"]);
    assert_eq!(shop.done(1), [["Done", r#"{"Ok":1}"#, "2"]]);

    shop.push(ORDER);
    assert_eq!(worker.says(1), ["order 1: receipt 1"]);
    shop.done(2);
    assert_eq!(shop.charges(), "1: 1");
    worker.signal("-TERM");
    worker.ends();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_is_killed_before_its_acknowledgement_leaves_a_task_that_replays_the_receipt() {
    let shop = Shop::start();
    let proxy = Proxy::start(&shop.queue.address()).await;
    // The acknowledgement of apalis contains the result.
    proxy.fail_next_with(r#"{"Ok":1}"#, Fault::HalfOpen);
    let mut killed = Running::start("apalis", &[&proxy.url(), &shop.database.url()]);
    shop.push(ORDER);
    assert_eq!(killed.says(2), ["order 1: charging", "order 1: receipt 1"]);
    proxy.until_met(1).await;
    killed.signal("-KILL");
    drop(killed);
    assert_eq!((shop.charges(), shop.consumed()), ("1: 1".to_owned(), "1".to_owned()));
    assert_eq!(shop.tasks("done"), [""; 0]);

    let mut next = shop.worker();
    assert_eq!(next.says(1), ["order 1: receipt 1"]);
    // The killed attempt does not count: apalis counts an attempt at its acknowledgement.
    assert_eq!(shop.done(1), [["Done", r#"{"Ok":1}"#, "1"]]);
    assert_eq!(shop.charges(), "1: 1");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_is_killed_during_an_effect_leaves_a_task_that_another_one_runs() {
    let shop = Shop::start();
    let mut killed = shop.worker();
    shop.push(r#"{"number": 7, "cents": 100}"#);
    killed.says_at_last("order 7: receipt 1");
    shop.done(1);

    let mut connection = PgConnection::connect(&shop.database.url()).await.unwrap();
    let mut lock = connection.begin().await.unwrap();
    sqlx::query("LOCK TABLE charges IN EXCLUSIVE MODE").execute(&mut *lock).await.unwrap();
    shop.push(ORDER);
    assert_eq!(killed.says(1), ["order 1: charging"]);
    shop.push(ORDER);
    // In flight.
    assert_eq!(killed.says(1), ["order 1: retry"]);
    killed.signal("-KILL");
    drop(killed);
    let mut next = shop.worker();
    next.says_at_last("order 1: charging");
    lock.commit().await.unwrap();

    let results: Vec<_> = shop.done(3).into_iter().map(|[_, result, _]| result).collect();
    let charges = shop.charges();
    let receipt = charges.strip_prefix("7: 1, 1: ").unwrap();
    assert_eq!(results.iter().filter(|result| **result == format!(r#"{{"Ok":{receipt}}}"#)).count(), 2, "{results:?}");
}

#[test]
fn a_failed_task_runs_again() {
    let shop = Shop::start();
    let mut worker = shop.worker();
    shop.push(r#"{"number": 7, "cents": 100}"#);
    worker.says_at_last("order 7: receipt 1");
    shop.done(1);

    shop.database.psql("postgres", "ALTER TABLE charges RENAME TO closed");
    shop.push(ORDER);
    assert_eq!(worker.says(2), ["order 1: charging", "order 1: retry"]);
    shop.database.psql("postgres", "ALTER TABLE closed RENAME TO charges");
    worker.says_at_last("order 1: receipt 2");
    let done = shop.done(2);
    let again = done.iter().find(|[_, result, _]| result == r#"{"Ok":2}"#).unwrap();
    assert!(again[2].parse::<u32>().unwrap() > 1, "{again:?}");
    assert_eq!(shop.charges(), "7: 1, 1: 2");
}

#[test]
fn a_task_that_no_retry_helps_is_dead_and_its_key_is_not_consumed() {
    let shop = Shop::start();
    let mut worker = shop.worker();
    shop.push(r#"{"number": 2, "cents": 0}"#);
    shop.push(r#""what?""#);
    shop.push(ORDER);
    worker.says_at_last("order 1: receipt 1");
    until("two tasks are dead", || shop.tasks("dead").len() == 2);
    let mut dead: Vec<_> = shop.tasks("dead").iter().map(|id| shop.task(id)).collect();
    dead.sort();
    let [failed, unreadable] = &*dead else { panic!("{dead:?}") };
    assert_eq!(failed, &["Killed", r#"{"Err":"AbortError: failed for good"}"#, "1"]);
    assert!(unreadable[1].contains("invalid type"), "{unreadable:?}");
    assert_eq!((&*unreadable[0], &*unreadable[2]), ("Killed", "1"));
    // Only the key of order 1.
    shop.done(1);
    assert_eq!((shop.charges(), shop.consumed()), ("1: 1".to_owned(), "1".to_owned()));
}
