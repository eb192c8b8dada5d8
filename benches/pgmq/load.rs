//! The cost of messages over PGMQ: `cargo xtask bench pgmq`.
//!
//! One queue, filled before it is consumed, in several ways: by a bare client that reads and deletes 256 messages at a time, and by
//! the consumer runtime without keys, and with keys in memory and in Redis. Each figure is compared with the figure of the bare client in
//! the same round, measured alternately, so that a busy machine slows down both. Ratios are medians of the ratios within a round.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, missing_docs, unreachable_pub)]
#[path = "../mq/broker.rs"]
#[allow(dead_code, reason = "other benches use more of this module")]
mod broker;

use idempotent::pgmq::PgmqSource;
use idempotent_harness::servers::PostgresServer;
use sqlx::postgres::PgConnection;
use sqlx::{Connection, PgPool, Row};

use crate::broker::{Begun, Broker, COMPARED, Consumed, MESSAGES, PREFETCH, body};

const QUEUE: &str = "orders";
const FILL: &str = "INSERT INTO pgmq.q_orders (vt, message, headers) \
                    SELECT clock_timestamp(), $1::jsonb, jsonb_build_object('idempotent', jsonb_build_object('id', 'message-' || n)) \
                    FROM generate_series($2::bigint, $3::bigint) AS n";
const READ: &str = "SELECT msg_id, message::text, headers::text FROM pgmq.read($1, 30, $2)";

fn main() {
    broker::bench("pgmq", &COMPARED, MESSAGES, Pgmq::start);
}

struct Pgmq {
    server: PostgresServer,
    client: PgPool,
    body: String,
}

impl Pgmq {
    async fn start() -> Self {
        let server = PostgresServer::start_durable();
        server.install_pgmq("postgres");
        let client = PgPool::connect(&server.url()).await.unwrap();
        let pgmq = Self { server, client, body: body() };
        // Creates the queue.
        pgmq.source(&pgmq.url()).await;
        pgmq
    }
}

impl Broker for Pgmq {
    type Source = PgmqSource;

    fn url(&self) -> String {
        self.server.url()
    }

    async fn fill(&self, from: u64, messages: u64) {
        // Rows of consumed messages would slow down the server during the whole run.
        sqlx::query("SELECT pgmq.purge_queue($1)").bind(QUEUE).execute(&self.client).await.unwrap();
        let (first, last) = (i64::try_from(from).unwrap(), i64::try_from(from + messages - 1).unwrap());
        sqlx::query(FILL).bind(&self.body).bind(first).bind(last).execute(&self.client).await.unwrap();
        sqlx::query("VACUUM ANALYZE pgmq.q_orders").execute(&self.client).await.unwrap();
    }

    async fn source(&self, url: &str) -> PgmqSource {
        PgmqSource::builder(url, QUEUE).declare().connect().await.unwrap()
    }

    /// Calls `read` and `delete` for 256 messages at a time, over one connection of sqlx.
    async fn bare(&self, url: &str, _: bool, messages: u64) -> Consumed {
        let mut connection = PgConnection::connect(url).await.unwrap();
        let (mut begun, mut left) = (None, usize::try_from(messages).unwrap());
        while left > 0 {
            let read = sqlx::query(READ).bind(QUEUE).bind(i32::try_from(PREFETCH).unwrap());
            let rows = read.fetch_all(&mut connection).await.unwrap();
            begun.get_or_insert_with(Begun::now);
            let bodies =
                rows.iter().map(|row| (row.get::<i64, _>(0), row.get::<String, _>(1), row.get::<String, _>(2)));
            let ids: Vec<i64> = bodies.map(|(id, ..)| id).collect();
            left -= ids.len();
            let delete = sqlx::query("SELECT pgmq.delete($1, $2::bigint[])").bind(QUEUE).bind(ids);
            delete.execute(&mut connection).await.unwrap();
        }
        begun.unwrap().ended()
    }
}
