//! The duration of claims while a purge removes records of a large table in PostgreSQL.
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use idempotent::{PostgresStore, Store};
use idempotent_harness::servers::PostgresServer;

use crate::claims::{CLAIMERS, p99_during};
use crate::report::{Goal, Pair, Report};
use crate::sql::{STORE, TABLE};

/// The rows, the time of one measurement, and the rounds.
#[derive(Clone, Copy)]
struct Size {
    rows: u64,
    time: Duration,
    rounds: usize,
}

const TRIED: Size = Size { rows: 1_000, time: Duration::from_millis(50), rounds: 1 };
const SMALL: Size = Size { rows: 200_000, time: Duration::from_secs(2), rounds: 3 };
const FULL: Size = Size { rows: 10_000_000, time: Duration::from_secs(30), rounds: 3 };

pub async fn all(report: &Report, is_full: bool) {
    let size = match (report.is_tried(), is_full) {
        (true, _) => TRIED,
        (false, true) => FULL,
        (false, false) => SMALL,
    };
    for (partitions, of) in [(None, "rows"), (Some(16), "rows in 16 partitions")] {
        let case = format!("claims' p99 during a purge of {} {of}, to idle", size.rows);
        if report.wants(STORE, &case) {
            let pair = measure(size, partitions).await;
            report.pair((STORE, &case, Some(CLAIMERS)), "ms", pair, Goal::AtMost(3.0));
        }
    }
}

/// Measures claims during a purge and without one, in turns.
async fn measure(size: Size, partitions: Option<u16>) -> Pair {
    let server = PostgresServer::start_durable();
    let mut builder = PostgresStore::builder(server.url()).table(TABLE).create(true).timeout(Duration::from_secs(60));
    if let Some(partitions) = partitions {
        builder = builder.partitions(partitions);
    }
    let (store, purging) = (builder.clone().connect().await.unwrap(), builder.connect().await.unwrap());
    let (store, next): (Arc<dyn Store>, _) = (Arc::new(store), Arc::new(AtomicU64::new(0)));
    fill(&server, size.rows);
    let mut pairs = Vec::new();
    for _ in 0..size.rounds {
        // A purge that ends early leaves the rest of the time to the claims, so the table has more rows than a round removes.
        let purge = async {
            let purge = purging.capabilities().purge.unwrap().purge(usize::MAX);
            if let Ok(removed) = tokio::time::timeout(size.time, purge).await {
                removed.unwrap();
            }
        };
        let during = p99_during(&store, &next, None, purge).await;
        pairs.push((during, p99_during(&store, &next, None, tokio::time::sleep(size.time)).await));
    }
    Pair::medians(&pairs)
}

/// Inserts rows, half of them expired, and builds the primary key after that, which takes a fraction of the time.
fn fill(server: &PostgresServer, rows: u64) {
    server.psql(
        "postgres",
        &format!(
            "ALTER TABLE {TABLE} DROP CONSTRAINT {TABLE}_pkey; \
             INSERT INTO {TABLE} SELECT decode(md5(i::text),'hex'),1,'a',2,decode(md5(i::text),'hex'),1,1,0,NULL,NULL,\
             CASE WHEN i%2=0 THEN 1 ELSE 9000000000000000 END,1,1,NULL,NULL,NULL FROM generate_series(1,{rows}) AS i; \
             ALTER TABLE {TABLE} ADD PRIMARY KEY (id)"
        ),
    );
    server.psql("postgres", &format!("VACUUM ANALYZE {TABLE}"));
    server.psql("postgres", "CHECKPOINT");
}
