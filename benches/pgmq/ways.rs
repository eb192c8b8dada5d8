//! The queue, consumed in several ways.
use idempotent::pgmq::PgmqSource;
use idempotent::{Executor, MemoryStore, RedisStore};
use idempotent_harness::servers::{PostgresServer, RedisServer};
use sqlx::postgres::PgConnection;
use sqlx::{Connection, PgPool, Row};
use tokio::runtime::Runtime;

use crate::consumed::{Begun, Consumed, TimedHandler};
use crate::queue::{PREFETCH, QUEUE, Queue};

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Way {
    /// The functions of PGMQ over one connection of sqlx: `read` and `delete` for 256 messages at a time.
    Bare,
    /// The consumer runtime without keys.
    Unprotected,
    /// The consumer runtime with keys, in memory.
    Memory,
    /// The consumer runtime with keys, in Redis.
    Redis,
}

/// The environment that all ways share.
pub struct Place {
    pub runtime: Runtime,
    pub queue: Queue,
    pub url: String,
    redis: Executor,
}

impl Place {
    pub fn new(postgres: &PostgresServer, redis: &RedisServer) -> Self {
        postgres.install_pgmq("postgres");
        let runtime = crate::cpu::runtime();
        let (queue, store) = runtime.block_on(async {
            source(&postgres.url()).await;
            let client = PgPool::connect(&postgres.url()).await.unwrap();
            (Queue::new(client), RedisStore::connect(redis.url()).await.unwrap())
        });
        Self { runtime, queue, url: postgres.url(), redis: Executor::new(store) }
    }

    /// Consumes `messages` existing messages from the server at this URL.
    pub fn consume(&self, way: Way, url: &str, messages: u64) -> Consumed {
        let (executor, handler) = match way {
            Way::Bare => return self.runtime.block_on(bare(url, messages)),
            Way::Unprotected => (Executor::new(MemoryStore::new()), TimedHandler::unprotected()),
            Way::Memory => (Executor::new(MemoryStore::new()), TimedHandler::keyed()),
            Way::Redis => (self.redis.clone(), TimedHandler::keyed()),
        };
        self.runtime.block_on(async {
            let source = source(url).await;
            handler.consume(source, &executor, PREFETCH, messages).await
        })
    }
}

async fn source(url: &str) -> PgmqSource {
    PgmqSource::builder(url, QUEUE).declare().connect().await.unwrap()
}

async fn bare(url: &str, messages: u64) -> Consumed {
    const READ: &str = "SELECT msg_id, message::text, headers::text FROM pgmq.read($1, 30, $2)";
    let mut connection = PgConnection::connect(url).await.unwrap();
    let (mut begun, mut left) = (None, usize::try_from(messages).unwrap());
    while left > 0 {
        let read = sqlx::query(READ).bind(QUEUE).bind(i32::try_from(PREFETCH).unwrap());
        let rows = read.fetch_all(&mut connection).await.unwrap();
        begun.get_or_insert_with(Begun::now);
        let bodies = rows.iter().map(|row| (row.get::<i64, _>(0), row.get::<String, _>(1), row.get::<String, _>(2)));
        let ids: Vec<i64> = bodies.map(|(id, ..)| id).collect();
        left -= ids.len();
        sqlx::query("SELECT pgmq.delete($1, $2::bigint[])")
            .bind(QUEUE)
            .bind(ids)
            .execute(&mut connection)
            .await
            .unwrap();
    }
    begun.unwrap().ended()
}
