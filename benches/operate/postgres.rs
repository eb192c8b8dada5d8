//! PostgreSQL with default settings, on the loopback interface.
use std::sync::Arc;

use idempotent::{PostgresStore, Store};
use idempotent_harness::servers::PostgresServer;

use crate::relay::Relay;
use crate::{DEAD, Side};

pub struct PostgresSide {
    _server: Arc<PostgresServer>,
    store: Arc<PostgresStore>,
    operator: Arc<PostgresStore>,
    relay: Relay,
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
        let server = Arc::new(server);
        let serving = server.clone();
        // A backend is listed when its client is authenticated.
        let process = move |port: u16| {
            let pid = format!("SELECT pid FROM pg_stat_activity WHERE client_port = {port}");
            serving.psql("postgres", &pid).parse().ok()
        };
        let relay = Relay::start(server.address(), Arc::new(process));
        let operator = PostgresStore::builder(server.url().replace(&server.address(), &relay.address()));
        let operator = operator.connections(1).connect().await.unwrap();
        Self { _server: server, store: Arc::new(store), operator: Arc::new(operator), relay }
    }
}

impl Side for PostgresSide {
    fn name(&self) -> &'static str {
        "postgres"
    }

    fn store(&self) -> Arc<dyn Store> {
        self.store.clone()
    }

    fn operator(&self) -> Arc<dyn Store> {
        self.operator.clone()
    }

    fn relay(&self) -> &Relay {
        &self.relay
    }
}
