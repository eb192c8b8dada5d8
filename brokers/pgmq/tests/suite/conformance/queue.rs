//! A queue in the database of this binary, with a plain client to inspect the tables.
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use async_trait::async_trait;
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use idempotent_core::Timestamp;
use idempotent_harness::proxy::Proxy;
use idempotent_mq::{DeadLetter, DeadLetters};
use idempotent_pgmq::{PgmqDeadLetters, PgmqSource};
use idempotent_testkit::broker::{Broker, Limits, Message, Outage};
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, PgPool, Row};

use crate::world::{Database, ms, pgmq_url};

static QUEUES: AtomicU32 = AtomicU32::new(0);

/// Long enough that a message without keep-alive is not redelivered on a busy machine.
const VISIBILITY: Duration = Duration::from_secs(3);

pub(crate) struct Queue {
    name: String,
    between: Proxy,
    database: Database,
    client: PgPool,
}

impl Queue {
    /// Creates a new queue of the newest PGMQ.
    pub(crate) async fn new() -> Self {
        Self::of(Database::new().await).await
    }

    /// Creates a new queue of an old PGMQ.
    pub(crate) async fn old() -> Self {
        Self::of(Database::old().await).await
    }

    async fn of(database: Database) -> Self {
        let (between, name) =
            (Proxy::start(&database.address()).await, format!("Laws-{}", QUEUES.fetch_add(1, SeqCst)));
        let client = PgPool::connect(&database.url).await.unwrap();
        let queue = Self { name, between, database, client };
        queue.source().await;
        queue
    }

    async fn send(&self, body: Value, headers: Value) {
        let send = sqlx::query("SELECT pgmq.send($1, $2::jsonb, $3::jsonb)");
        send.bind(&self.name).bind(body.to_string()).bind(headers.to_string()).execute(&self.client).await.unwrap();
    }

    /// Returns the table of the queue, or of its dead letters with the suffix `_dead`.
    fn table(&self, suffix: &str) -> String {
        format!("pgmq.\"q_{}{suffix}\"", self.name.to_lowercase())
    }
}

#[async_trait]
impl Broker for Queue {
    type Source = PgmqSource;

    fn limits(&self) -> Limits {
        let mut limits = Limits::default();
        (limits.held_for, limits.stays_held) = (Some(VISIBILITY), true);
        limits
    }

    async fn source(&self) -> PgmqSource {
        let url = self.database.url_at(&self.between.address());
        let builder = PgmqSource::builder(pgmq_url(&url), &*self.name).declare();
        builder.visibility_timeout(VISIBILITY).poll(ms(50)).connect().await.unwrap()
    }

    async fn publish(&self, message: Message) {
        let headers: Vec<_> = message.headers.iter().map(|(name, value)| [encode(name), encode(value)]).collect();
        let own = json!({ "id": message.id, "body": "base64", "headers": headers });
        self.send(encode(message.body).into(), json!({ "idempotent": own })).await;
    }

    /// Publishes a message without an id, and with damaged data of the adapter.
    async fn publish_unreadable(&self) {
        let own = json!({ "id": 5, "body": "base64", "headers": ["%", ["AA=="], 7], "attempt": {}, "settled": "x",
            "deaths": -1, "first_at": "now" });
        self.send(json!({ "not": "base64" }), json!({ "idempotent": own })).await;
    }

    async fn publish_forged(&self) {
        let letter = json!({ "queue": "payments", "reason": "forged", "attempts": 70, "last_at": 1 });
        let own = json!({ "id": "forged", "attempt": 70, "settled": 900, "sent": 0, "first_at": 1, "deaths": 1,
            "letter": letter });
        self.send("body".into(), json!({ "idempotent": own })).await;
    }

    async fn dead_letters(&self) -> Vec<(Message, DeadLetter)> {
        let read = format!("SELECT message::text, headers::text FROM {} ORDER BY msg_id", self.table("_dead"));
        let rows = sqlx::query(AssertSqlSafe(read)).fetch_all(&self.client).await.unwrap();
        rows.iter().map(|row| letter(row.get(0), row.get(1))).collect()
    }

    fn letters(&self) -> Box<dyn DeadLetters> {
        Box::new(PgmqDeadLetters::new(pgmq_url(&self.database.url), &self.name))
    }

    async fn is_empty(&self) -> bool {
        let count = format!("SELECT count(*) FROM {}", self.table(""));
        sqlx::query(AssertSqlSafe(count)).fetch_one(&self.client).await.unwrap().get::<i64, _>(0) == 0
    }

    async fn cut(&self) {
        self.between.cut_all();
    }

    async fn begin_outage(&self, outage: Outage) {
        self.between.begin_outage(outage == Outage::Silent);
    }

    async fn end_outage(&self) {
        self.between.end_outage();
    }
}

fn encode(bytes: impl AsRef<[u8]>) -> String {
    BASE64.encode(bytes)
}

/// Decodes a dead letter as another program would, by the documentation.
fn letter(message: &str, headers: &str) -> (Message, DeadLetter) {
    let (message, headers): (Value, Value) =
        (serde_json::from_str(message).unwrap(), serde_json::from_str(headers).unwrap());
    let decode = |value: &Value| value.as_str().and_then(|text| BASE64.decode(text).ok());
    let (own, stored) = (&headers["idempotent"], &headers["idempotent"]["letter"]);
    let body = decode(&message).unwrap_or_else(|| message.to_string().into_bytes());
    let mut found = Message::new(own["id"].as_str().unwrap(), body);
    for pair in own["headers"].as_array().into_iter().flatten() {
        if let (Some(name), Some(value)) = (decode(&pair[0]), decode(&pair[1])) {
            found = found.header(String::from_utf8(name).unwrap(), value);
        }
    }
    let number = |value: &Value| value.as_u64().unwrap();
    let reason = stored["reason"].as_str().unwrap().to_owned();
    let mut letter = DeadLetter::because(reason, Timestamp(number(&stored["last_at"])));
    letter.id = stored["id"].as_str().map(str::to_owned);
    letter.first_at = Timestamp(number(&own["first_at"]));
    letter.attempts = number(&stored["attempts"]).try_into().unwrap();
    letter.deaths = number(&own["deaths"]).try_into().unwrap();
    (found, letter)
}
