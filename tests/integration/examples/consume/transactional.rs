//! `--level transactional`: one effect for each key, whichever process is killed.
use idempotent::PostgresStore;
use idempotent_harness::servers::{MariaDbServer, PostgresServer};
use sqlx::{Connection, MySqlConnection, PgConnection};

use crate::consume::support::{Job, Running};
use crate::wait::until;

/// The number of kills, each at another time.
const KILLS: usize = 6;

fn block_on<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

/// Rows of the effects, and keys among them.
fn in_postgres(url: &str) -> Option<(i64, i64)> {
    block_on(async {
        let mut connection = PgConnection::connect(url).await.ok()?;
        let counts = "SELECT count(*), count(DISTINCT key) FROM effects";
        sqlx::query_as(counts).fetch_one(&mut connection).await.ok()
    })
}

fn in_mariadb(url: &str) -> Option<(i64, i64)> {
    block_on(async {
        let mut connection = MySqlConnection::connect(url).await.ok()?;
        let counts = "SELECT count(*), count(DISTINCT `key`) FROM effects";
        sqlx::query_as(counts).fetch_one(&mut connection).await.ok()
    })
}

/// Starts it, kills it once there are more effects, and again; then lets it come to its end.
fn under_kills(job: &Job, arguments: &[&str], rows: &dyn Fn() -> usize) {
    let slow = [arguments, &["--json", "--slow-ms", "20"]].concat();
    for kill in 1..=KILLS {
        let running: Running = job.spawn(&slow);
        let enough = rows() + 5 + kill;
        until("more effects", || rows() >= enough);
        running.kill();
    }
    let done = job.run(&[arguments, &["--json"]].concat()).exits(0);
    assert_eq!(done.json()["level"], "L3");
    assert_eq!(done.counts(["deliveries", "dead"]), [494, 0]);
}

#[test]
fn each_key_has_one_effect_in_a_file_although_workers_are_killed() {
    let job = Job::new();
    let rows = || job.try_rows("store.db").map_or(0, |rows| rows.len());
    under_kills(&job, &["--level", "transactional"], &rows);
    let mut keys = job.try_rows("store.db").unwrap();
    assert_eq!(keys.len(), 287, "no row is missing, and none is twice");
    keys.sort();
    keys.dedup();
    assert_eq!(keys.len(), 287);
    assert!(!job.path("effects.db").exists());
}

#[test]
fn each_key_has_one_effect_in_postgresql_although_workers_are_killed() {
    let server = PostgresServer::start();
    let job = Job::new();
    let rows = || in_postgres(&server.url()).map_or(0, |(rows, _)| usize::try_from(rows).unwrap());
    under_kills(&job, &["--store", &server.url(), "--level", "transactional"], &rows);
    assert_eq!(in_postgres(&server.url()), Some((287, 287)));
    // Another start knows all of them.
    let again = job.run(&["--store", &server.url(), "--level", "transactional", "--json"]).exits(0);
    assert_eq!(again.counts(["executed", "replayed"]), [0, 494]);
    let shown = job.run(&["--store", &server.url(), "--level", "transactional", "--fresh"]).exits(0).stdout;
    for part in ["effects  in the store's database: 287 rows, no key twice", "level L3: effect and record"] {
        assert!(shown.contains(part), "{part} in {shown}");
    }
}

#[test]
fn each_key_has_one_effect_in_mariadb_although_workers_are_killed() {
    let server = MariaDbServer::start();
    let job = Job::new();
    let rows = || in_mariadb(&server.url()).map_or(0, |(rows, _)| usize::try_from(rows).unwrap());
    under_kills(&job, &["--store", &server.url(), "--level", "transactional"], &rows);
    assert_eq!(in_mariadb(&server.url()), Some((287, 287)));
    let mariadb = server.url().replace("mysql:", "mariadb:");
    let again = job.run(&["--store", &mariadb, "--level", "transactional", "--json"]).exits(0);
    assert_eq!(again.counts(["executed", "replayed"]), [0, 494]);
}

#[test]
fn a_failed_message_leaves_no_effect_and_runs_again() {
    let job = Job::new();
    let ended = job.run(&["--level", "transactional", "--json", "--fail-every", "3"]).exits(0);
    let [executed, failed] = ended.counts(["executed", "failed"]);
    assert_eq!(executed, 287);
    assert!(failed > 50, "{failed}");
    assert_eq!(job.try_rows("store.db").unwrap().len(), 287);
}

#[test]
fn effects_elsewhere_and_stores_without_transactions_are_refused_by_name() {
    let job = Job::over(b"{\"delivery_id\":1}\n");
    for (arguments, part) in [
        (&["--effects", "effects.db"][..], "--effects does not go with --level transactional"),
        (&["--store", "memory"], "give --store an SQLite file, or a postgres:// or mysql:// URL"),
        (&["--store", "redis://127.0.0.1:1"], "give --store an SQLite file, or a postgres:// or mysql:// URL"),
    ] {
        let ended = job.run(&[&["--level", "transactional"], arguments].concat()).exits(2);
        assert!(ended.stderr.contains(part), "{part} in {}", ended.stderr);
    }
    let ended = job.run(&["--level", "L3"]).exits(2);
    assert!(ended.stderr.contains("marker, transactional"), "{}", ended.stderr);
}

/// A table that an administrator has created is used without changes.
#[test]
fn a_table_that_is_there_is_used() {
    let server = PostgresServer::start();
    block_on(PostgresStore::builder(server.url()).create(true).connect()).unwrap();
    let job = Job::over(b"{\"delivery_id\":1}\n{\"delivery_id\":1}\n");
    let ended = job.run(&["--store", &server.url(), "--level", "transactional", "--json"]).exits(0);
    assert_eq!(ended.counts(["executed", "replayed"]), [1, 1]);
    assert_eq!(in_postgres(&server.url()), Some((1, 1)));
}
