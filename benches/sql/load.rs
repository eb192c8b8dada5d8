//! The cost of runs over SQL databases: `cargo xtask bench sql`.
//!
//! Each figure has a floor: the same effect by two statements, with the same guards and the database's clock (MariaDB:
//! without them), in the same database, measured in the same run, in alternating order, so that a busy machine slows
//! down both. The floor of four workers is one worker. Databases wait for the disk on every commit. Ratios are medians of the ratios within a round.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, missing_docs, unreachable_pub)]
mod backlog;
mod batches;
mod by_hand;
mod cases;
mod claims;
mod inbox;
mod journal;
#[path = "../core/keys.rs"]
mod keys;
mod mariadb;
mod ours;
mod partitions;
mod postgres;
mod purge;
#[path = "../core/report.rs"]
#[allow(dead_code, reason = "the core's benches use the rest of it")]
mod report;
mod sqlite;

use crate::cases::Side;
use crate::report::Report;

fn main() {
    let report = Report::from_args("sql");
    report.title();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        if wanted(&report, "postgres") || partitions::wanted(&report) {
            let server = idempotent_harness::servers::PostgresServer::start_durable();
            let side = postgres::side(&server).await;
            all(&report, &side).await;
            inbox::all(&report, &server).await;
            partitions::all(&report, &server, &side).await;
        }
        if wanted(&report, "mariadb") {
            let server = idempotent_harness::servers::MariaDbServer::start_durable();
            all(&report, &mariadb::side(&server).await).await;
            backlog::all(&report, &server).await;
        }
        if wanted(&report, "sqlite") {
            let folder = tempfile::tempdir().unwrap();
            all(&report, &sqlite::side(folder.path()).await).await;
        }
    });
}

/// Returns whether the server or file is needed.
fn wanted(report: &Report, store: &str) -> bool {
    let of_all = [cases::FRESH, cases::DUPLICATE, cases::CACHED, batches::CASE, journal::CASE, purge::CASE];
    let of_mariadb = [backlog::TASKS, backlog::MESSAGES];
    let of_postgres = [inbox::TO_HAND, inbox::TO_NONE, inbox::EXECUTED];
    let cases = of_all.iter().chain(of_postgres.iter().filter(|_| store == "postgres"));
    let cases = cases.chain(of_mariadb.iter().filter(|_| store == "mariadb"));
    cases.into_iter().any(|case| report.wants(store, case))
}

async fn all(report: &Report, side: &Side) {
    cases::fresh_and_duplicates(report, side).await;
    cases::cached(report, side).await;
    batches::all(report, side).await;
    journal::all(report, side).await;
    purge::all(report, side).await;
}
