//! PostgreSQL with default settings, on the loopback interface. The floor uses a pool, as in an application.
use std::sync::Arc;

use async_trait::async_trait;
use idempotent::PostgresStore;
use idempotent_harness::servers::PostgresServer;
use sqlx::postgres::{PgPool, PgPoolOptions};
use sqlx::{AssertSqlSafe, Row, query};

use crate::by_hand::{ByHand, Dialect, LEASE, MEMORY, NAME, RETENTION, VALUE, id};
use crate::cases::{Goals, Side};
use crate::report::Goal;

/// One connection for each task.
const CONNECTIONS: u32 = 16;
const TABLE: &str = "by_hand";

pub async fn side(server: &PostgresServer) -> Side {
    let open =
        |table: &str| PostgresStore::builder(server.url()).connections(CONNECTIONS).table(table).create(true).connect();
    // Creates the table.
    drop(open(TABLE).await.unwrap());
    let pool = PgPoolOptions::new().max_connections(CONNECTIONS).test_before_acquire(false);
    let dialect =
        Dialect { now: "(extract(epoch FROM clock_timestamp())*1000000)::bigint", greatest: "greatest", table: TABLE };
    let texts = [dialect.claim(), dialect.complete(), dialect.look(), dialect.step()];
    let [claim, complete, look, step] = texts.map(Arc::from);
    let bare = Bare { pool: pool.connect(&server.url()).await.unwrap(), claim, complete, look, step };
    let goals = Goals { fresh: 0.85, duplicate: 0.9, batch: [Goal::AtLeast(10.0); 2] };
    let store = Arc::new(open("ours").await.unwrap());
    Side { name: "postgres", store, by_hand: Arc::new(bare), goals, messages: [64, 1_024] }
}

struct Bare {
    pool: PgPool,
    claim: Arc<str>,
    complete: Arc<str>,
    look: Arc<str>,
    step: Arc<str>,
}

#[async_trait]
impl ByHand for Bare {
    async fn cycle(&self, number: u64) {
        let id = id(number);
        let claim = query(AssertSqlSafe(self.claim.clone())).bind(&id[..]).bind(NAME.as_bytes()).bind(&id[..]);
        let claimed = claim.bind(LEASE).bind(MEMORY).fetch_one(&self.pool).await.unwrap();
        let fencing: i64 = claimed.get(0);
        let complete = query(AssertSqlSafe(self.complete.clone())).bind(&id[..]).bind(&id[..]);
        let completed = complete.bind(fencing).bind(RETENTION).execute(&self.pool).await.unwrap();
        assert_eq!(completed.rows_affected(), 1);
    }

    async fn look(&self, number: u64) {
        let look = query(AssertSqlSafe(self.look.clone())).bind(&id(number)[..]).fetch_optional(&self.pool).await;
        assert_eq!(look.unwrap().unwrap().get::<i16, _>("state"), 2);
    }

    async fn step(&self, number: u64) {
        let step = query(AssertSqlSafe(self.step.clone())).bind(id(number).to_vec()).bind(&b"step"[..]).bind(VALUE);
        step.execute(&self.pool).await.unwrap();
    }

    async fn fill(&self, rows: usize) {
        let fill = "INSERT INTO ours SELECT decode(md5(i::text||clock_timestamp()),'hex'),1,'a',2,decode(md5(i::text),'hex'),1,1,\
                    0,NULL,NULL,1,1,1,NULL,NULL,NULL FROM generate_series(1,$1) AS i";
        query(fill).bind(rows as i64).execute(&self.pool).await.unwrap();
    }
}
