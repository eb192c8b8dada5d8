//! MariaDB with default settings, on the loopback interface. The floor is a bare INSERT IGNORE and a bare UPDATE, on a
//! pool, as in an application.
use std::sync::Arc;

use async_trait::async_trait;
use idempotent::MySqlStore;
use idempotent_harness::servers::MariaDbServer;
use sqlx::mysql::{MySqlPool, MySqlPoolOptions};
use sqlx::{Row, query};

use crate::by_hand::{ByHand, LEASE, MEMORY, NAME, RETENTION, VALUE, id};
use crate::cases::{Goals, Side};
use crate::report::Goal;

/// One connection for each task.
const CONNECTIONS: u32 = 16;

pub async fn side(server: &MariaDbServer) -> Side {
    let open =
        |table: &str| MySqlStore::builder(server.url()).connections(CONNECTIONS).table(table).create(true).connect();
    // Creates the tables.
    drop(open("by_hand").await.unwrap());
    let pool = MySqlPoolOptions::new().max_connections(CONNECTIONS).test_before_acquire(false);
    let bare = Bare(pool.connect(&server.url()).await.unwrap());
    let goals = Goals { fresh: 0.75, duplicate: 0.9, batch: [Goal::AtLeast(6.0); 2] };
    let store = Arc::new(open("ours").await.unwrap());
    Side { name: "mariadb", store, by_hand: Arc::new(bare), goals, messages: [64, 1_024] }
}

struct Bare(MySqlPool);

#[async_trait]
impl ByHand for Bare {
    async fn cycle(&self, number: u64) {
        let id = id(number).to_vec();
        let claim = "INSERT IGNORE INTO by_hand (id,v,name,state,owner,fencing,attempt,until_at,expires_at,first_seen,\
                     updated_at) VALUES (?,1,?,1,?,1,1,?,?,1,1)";
        let claim = query(claim).bind(id.clone()).bind(NAME.as_bytes()).bind(id.clone()).bind(LEASE).bind(MEMORY);
        assert_eq!(claim.execute(&self.0).await.unwrap().rows_affected(), 1);
        let complete = query("UPDATE by_hand SET state=2, expires_at=? WHERE id=?").bind(RETENTION).bind(id);
        assert_eq!(complete.execute(&self.0).await.unwrap().rows_affected(), 1);
    }

    async fn look(&self, number: u64) {
        let look = query("SELECT * FROM by_hand WHERE id=?").bind(id(number).to_vec()).fetch_optional(&self.0).await;
        assert_eq!(look.unwrap().unwrap().get::<i16, _>("state"), 2);
    }

    async fn step(&self, number: u64) {
        let step = "INSERT INTO by_hand_steps (id,name,begun,place,state,value) VALUES (?,'step',1,0,1,?)";
        query(step).bind(id(number).to_vec()).bind(VALUE).execute(&self.0).await.unwrap();
    }

    async fn fill(&self, rows: usize) {
        let fill = "INSERT INTO ours SELECT unhex(md5(concat(seq,now(6)))),1,'a',2,unhex(md5(seq)),1,1,0,NULL,NULL,1,1,1,\
                    NULL,NULL,NULL FROM seq_1_to_100000 LIMIT ?";
        query(fill).bind(rows as i64).execute(&self.0).await.unwrap();
    }
}
