//! The queue, which is filled before it is consumed.
use sqlx::PgPool;

pub const QUEUE: &str = "orders";
/// The maximum number of messages that a consumer holds.
pub const PREFETCH: usize = 256;

pub struct Queue {
    client: PgPool,
    body: String,
}

const FILL: &str = "INSERT INTO pgmq.q_orders (vt, message, headers) \
                    SELECT clock_timestamp(), $1::jsonb, jsonb_build_object('idempotent', jsonb_build_object('id', 'message-' || n)) \
                    FROM generate_series($2::bigint, $3::bigint) AS n";

impl Queue {
    /// Messages of a few hundred bytes, like a typical order.
    pub fn new(client: PgPool) -> Self {
        let lines = (0..8).map(|line| format!(r#"{{"sku":"desk-{line}","qty":{line},"cents":12900}}"#));
        let body = format!(r#"{{"order":17,"customer":"c-8431","lines":[{}]}}"#, lines.collect::<Vec<_>>().join(","));
        Self { client, body }
    }

    /// Sends `messages` messages. Their ids are their numbers, starting at `from`.
    pub async fn fill(&self, from: u64, messages: u64) {
        // Rows of consumed messages would slow down the server during the whole run.
        sqlx::query("SELECT pgmq.purge_queue($1)").bind(QUEUE).execute(&self.client).await.unwrap();
        let (first, last) = (i64::try_from(from).unwrap(), i64::try_from(from + messages - 1).unwrap());
        sqlx::query(FILL).bind(&self.body).bind(first).bind(last).execute(&self.client).await.unwrap();
        sqlx::query("VACUUM ANALYZE pgmq.q_orders").execute(&self.client).await.unwrap();
    }
}
