//! SQLite with the store's settings: a write-ahead log, and a wait for the disk on every commit. The floor uses one
//! connection that tasks use in turn.
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use idempotent::SqliteStore;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection, SqliteSynchronous};
use sqlx::{AssertSqlSafe, ConnectOptions, Row, query};
use tokio::sync::Mutex;

use crate::by_hand::{ByHand, Dialect, LEASE, MEMORY, NAME, RETENTION, VALUE, id};
use crate::cases::{Goals, Side};
use crate::report::Goal;

pub async fn side(folder: &Path) -> Side {
    let place = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    // Creates the table.
    drop(SqliteStore::open(place("by_hand.db")).await.unwrap());
    let now = "(CAST(round(unixepoch('now','subsec')*1000) AS INTEGER)*1000)";
    let dialect = Dialect { now, greatest: "max", table: "idempotent_record" };
    let connect = async |name: &str| {
        let options = SqliteConnectOptions::new().filename(place(name)).synchronous(SqliteSynchronous::Full);
        Mutex::new(options.disable_statement_logging().connect().await.unwrap())
    };
    let store = Arc::new(SqliteStore::open(place("ours.db")).await.unwrap());
    let texts = [dialect.claim(), dialect.complete(), dialect.look(), dialect.step()];
    let [claim, complete, look, step] = texts.map(Arc::from);
    let bare = Bare { bare: connect("by_hand.db").await, ours: connect("ours.db").await, claim, complete, look, step };
    // Concurrent runs share their commits anyway.
    let batch = [Goal::AtLeast(4.0), Goal::None];
    let goals = Goals { fresh: 0.95, duplicate: 0.9, batch };
    Side { name: "sqlite", store, by_hand: Arc::new(bare), goals, messages: [64, 256] }
}

struct Bare {
    bare: Mutex<SqliteConnection>,
    ours: Mutex<SqliteConnection>,
    claim: Arc<str>,
    complete: Arc<str>,
    look: Arc<str>,
    step: Arc<str>,
}

#[async_trait]
impl ByHand for Bare {
    async fn cycle(&self, number: u64) {
        let id = id(number);
        let claim = query(AssertSqlSafe(self.claim.clone())).bind(&id[..]).bind(NAME).bind(&id[..]);
        let claimed = claim.bind(LEASE).bind(MEMORY).fetch_one(&mut *self.bare.lock().await).await.unwrap();
        let fencing: i64 = claimed.get(0);
        let complete = query(AssertSqlSafe(self.complete.clone())).bind(&id[..]).bind(&id[..]);
        let completed = complete.bind(fencing).bind(RETENTION).execute(&mut *self.bare.lock().await).await.unwrap();
        assert_eq!(completed.rows_affected(), 1);
    }

    async fn look(&self, number: u64) {
        let look = query(AssertSqlSafe(self.look.clone())).bind(&id(number)[..]);
        let found = look.fetch_optional(&mut *self.bare.lock().await).await.unwrap();
        assert_eq!(found.unwrap().get::<i64, _>("state"), 2);
    }

    async fn step(&self, number: u64) {
        let step = query(AssertSqlSafe(self.step.clone())).bind(id(number).to_vec()).bind(&b"step"[..]).bind(VALUE);
        step.execute(&mut *self.bare.lock().await).await.unwrap();
    }

    async fn fill(&self, rows: usize) {
        let fill = "WITH RECURSIVE i(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM i WHERE n<$1) \
                    INSERT INTO idempotent_record SELECT randomblob(16),1,'a',2,randomblob(16),1,1,0,NULL,NULL,1,1,1,NULL,\
                    NULL,NULL FROM i";
        query(fill).bind(rows as i64).execute(&mut *self.ours.lock().await).await.unwrap();
    }
}
