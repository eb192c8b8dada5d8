//! The job on PostgreSQL and MariaDB.
use std::sync::LazyLock;

use idempotent_harness::servers::{MariaDbServer, PostgresServer};

use crate::consume::shared;

static POSTGRES: LazyLock<PostgresServer> = LazyLock::new(PostgresServer::start);
static MARIADB: LazyLock<MariaDbServer> = LazyLock::new(MariaDbServer::start);

#[test]
fn two_processes_share_the_work_on_postgresql_and_a_restart_replays_all() {
    let server = PostgresServer::start();
    server.psql("postgres", "CREATE ROLE app LOGIN SUPERUSER PASSWORD 'hunter2'");
    let url = server.url().replace("postgres@", "app:hunter2@");
    let shown = format!("postgres://{}/postgres", server.address());
    shared::two_processes_share_the_work_and_a_restart_replays_all(&url, &shown, || {
        server.kill();
        server.restart();
    });
}

#[test]
fn two_processes_share_the_work_on_mariadb_and_a_restart_replays_all() {
    let server = MariaDbServer::start();
    server.sql("mysql", "CREATE USER app@'127.0.0.1' IDENTIFIED BY 'hunter2'; GRANT ALL ON test.* TO app@'127.0.0.1'");
    let url = server.url().replace("root@", "app:hunter2@");
    let shown = format!("mysql://{}/test", server.address());
    shared::two_processes_share_the_work_and_a_restart_replays_all(&url, &shown, || {
        server.kill();
        server.restart();
    });
}

#[test]
fn a_killed_process_costs_a_lease_on_postgresql() {
    shared::a_killed_process_costs_a_lease_and_at_most_one_effect_a_worker(&["--store", &POSTGRES.database("killed")]);
}

#[test]
fn a_killed_process_costs_a_lease_on_mariadb() {
    shared::a_killed_process_costs_a_lease_and_at_most_one_effect_a_worker(&["--store", &MARIADB.database("killed")]);
}

#[test]
fn a_fresh_start_runs_all_again_on_postgresql_and_mariadb() {
    shared::a_fresh_start_runs_all_again(&POSTGRES.database("fresh"));
    shared::a_fresh_start_runs_all_again(&MARIADB.database("fresh").replace("mysql:", "mariadb:"));
}
