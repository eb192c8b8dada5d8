//! The benefit of partitions by time for a purge, and their cost for a claim. The store has none, and decision 0036 has
//! the reasons. The bench uses the store's own layout, partitioned by the fencing token.
use std::time::Instant;

use idempotent_harness::servers::PostgresServer;
use sqlx::postgres::{PgPool, PgPoolOptions};
use sqlx::{AssertSqlSafe, query};

use crate::cases::Side;
use crate::report::{Goal, Pair, Report};

/// There is no goal, because the store has no partitions.
const DROPPED: &str = "a partition dropped by hand, to a purge";
/// A claim of a new key begins with this read, and a duplicate consists of it.
const LOOKED: &str = "a look into 3 partitions, to one table";
const ROWS: usize = 100_000;
const ROUNDS: usize = 5;

pub fn wanted(report: &Report) -> bool {
    [DROPPED, LOOKED].iter().any(|case| report.wants("postgres", case))
}

pub async fn all(report: &Report, server: &PostgresServer, side: &Side) {
    if !wanted(report) {
        return;
    }
    let pool = PgPoolOptions::new().max_connections(1).test_before_acquire(false);
    let pool = pool.connect(&server.url()).await.unwrap();
    run(&pool, "CREATE TABLE parts (LIKE ours, PRIMARY KEY (id, fencing)) PARTITION BY RANGE (fencing)").await;
    for (part, from, to) in [(0, "MINVALUE", "100"), (1, "100", "200"), (2, "200", "MAXVALUE")] {
        let make = format!("CREATE TABLE part_{part} PARTITION OF parts FOR VALUES FROM ({from}) TO ({to})");
        run(&pool, &make).await;
    }
    if report.wants(side.name, DROPPED) {
        dropped(report, &pool, side).await;
    }
    if report.wants(side.name, LOOKED) {
        looked(report, &pool).await;
    }
}

async fn run(pool: &PgPool, statement: &str) {
    query(AssertSqlSafe(statement.to_owned())).execute(pool).await.unwrap();
}

/// Returns a statement that inserts rows with fencing tokens from this one on, a hundredth of the rows for each.
fn fill(table: &str, from: usize, rows: usize) -> String {
    format!(
        "INSERT INTO {table} SELECT decode(md5(i::text),'hex'),1,'a',2,decode(md5(i::text),'hex'),{from}+i%100,1,0,NULL,NULL,\
         1,1,1,NULL,NULL,NULL FROM generate_series(1,{rows}) AS i"
    )
}

async fn dropped(report: &Report, pool: &PgPool, side: &Side) {
    let (rounds, rows) = if report.is_tried() { (1, 1_000) } else { (ROUNDS, ROWS) };
    let mut pairs = Vec::new();
    for _ in 0..rounds {
        run(pool, &fill("parts", 0, rows)).await;
        side.by_hand.fill(rows).await;
        let start = Instant::now();
        run(pool, "DROP TABLE part_0").await;
        let dropped = rows as f64 / start.elapsed().as_secs_f64();
        run(pool, "CREATE TABLE part_0 PARTITION OF parts FOR VALUES FROM (MINVALUE) TO (100)").await;
        let start = Instant::now();
        assert_eq!(side.store.capabilities().purge.unwrap().purge(rows).await.unwrap(), rows);
        let purged = rows as f64 / start.elapsed().as_secs_f64();
        pairs.push((dropped, purged));
    }
    report.pair((side.name, DROPPED, None), "records/s", Pair::medians(&pairs), Goal::None);
}

async fn looked(report: &Report, pool: &PgPool) {
    let rows = if report.is_tried() { 1_000 } else { ROWS };
    run(pool, "CREATE TABLE whole (LIKE ours, PRIMARY KEY (id))").await;
    run(pool, &fill("whole", 0, rows)).await;
    for from in [0, 100, 200] {
        run(pool, &fill("parts", from, rows / 3)).await;
    }
    run(pool, "VACUUM ANALYZE whole").await;
    run(pool, "VACUUM ANALYZE parts").await;
    let look = |table: &'static str| {
        let (pool, look) = (pool.clone(), format!("SELECT * FROM {table} WHERE id=$1"));
        move |number: u64| {
            let id = number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes().repeat(2);
            let (pool, look) = (pool.clone(), AssertSqlSafe(look.clone()));
            async move {
                // An absent key.
                assert!(query(look).bind(id).fetch_optional(&pool).await.unwrap().is_none());
            }
        }
    };
    let pair = report.rounds(9, 1_000, 1).nanos(1, look("parts"), look("whole")).await;
    report.pair(("postgres", LOOKED, Some(1)), "looks/s", pair.rates(), Goal::None);
}
