//! PostgreSQL with default settings, on the loopback interface. The server's log has the duration of each statement.
use std::sync::Arc;

use idempotent::{PostgresStore, Store};
use idempotent_harness::servers::PostgresServer;

use crate::{DEAD, Side};

pub struct PostgresSide {
    server: PostgresServer,
    store: Arc<PostgresStore>,
    /// The length of the log at the last `watch`.
    log: std::sync::Mutex<usize>,
}

impl PostgresSide {
    pub async fn start(records: u64) -> Self {
        let server = PostgresServer::start_durable();
        let store = PostgresStore::builder(server.url()).connections(8).create(true).connect().await.unwrap();
        let now = "(extract(epoch FROM clock_timestamp())*1000000)::bigint";
        let insert = |from: u64, to: u64, state: u8, owner: &str, error: &str| {
            format!(
                "INSERT INTO idempotent_record SELECT decode(md5(i::text),'hex'), 1, 'bench:mq:bench', {state}, {owner}, \
                 {now}-86400000000+i, 1, {now}, NULL, NULL, {now}+86400000000, {now}, {now}, NULL, {error}, NULL \
                 FROM generate_series({from},{to}) AS i"
            )
        };
        server.psql("postgres", &insert(1, records, 2, "decode(md5((-i)::text),'hex')", "NULL"));
        server.psql("postgres", &insert(records + 1, records + DEAD, 4, "NULL", "'no stock'"));
        // The checkpoint and the statistics of the load are no part of the figures.
        server.psql("postgres", "VACUUM ANALYZE idempotent_record");
        server.psql("postgres", "CHECKPOINT");
        Self { server, store: Arc::new(store), log: std::sync::Mutex::new(0) }
    }

    /// Sets the shortest duration of statements that are logged, in ms; -1: none.
    fn log_from(&self, ms: i32) {
        self.server.psql("postgres", &format!("ALTER SYSTEM SET log_min_duration_statement={ms}"));
        self.server.psql("postgres", "SELECT pg_reload_conf()");
        // The setting is in force in a session that begins after the reload.
        self.server.psql("postgres", "SELECT pg_sleep(0.2)");
    }
}

impl Side for PostgresSide {
    fn name(&self) -> &'static str {
        "postgres"
    }

    fn store(&self) -> Arc<dyn Store> {
        self.store.clone()
    }

    fn watch(&self) {
        self.log_from(0);
        *self.log.lock().unwrap() = self.server.log().len();
    }

    fn longest_ms(&self) -> f64 {
        let log = self.server.log();
        self.log_from(-1);
        let statements = log[*self.log.lock().unwrap()..].lines().filter(|line| line.contains("idempotent_record"));
        let duration = |line: &str| line.split_once("duration: ")?.1.split_once(" ms")?.0.parse::<f64>().ok();
        let longest = statements.filter_map(duration).max_by(f64::total_cmp);
        longest.expect("no statement of the listing is in the log")
    }
}
