//! The query plans of all statements as sent, on a large table: each one uses the index on ids.
#![allow(clippy::print_stdout, reason = "the plans are the result of the large run")]
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use idempotent_core::{
    Claim, ClaimRequest, FencingToken, Key, KeyFilter, PageLimits, ReleaseKind, Settled, StepRecord, StepState, Store,
    StoredSteps,
};
use idempotent_harness::servers::PostgresServer;
use idempotent_sqlx::{PostgresStore, PostgresStoreBuilder};

use crate::postgres::fixture::{creating, row_tables};
use crate::support::{done, held, key, release, request};

/// The statements of `postgres/sql.rs`, and three of steps. Those of the inbox differ only in the written values.
const STATEMENTS: usize = 18;

#[tokio::test]
async fn each_statement_goes_by_the_primary_key_over_100_000_rows() {
    judge(100_000).await;
}

/// Its plans are kept: what is planned while the table is small goes on as it grows.
#[tokio::test]
async fn a_batch_goes_by_the_primary_key_from_the_first_one_on() {
    let server = PostgresServer::start();
    let store = open(&server, "auto").await;
    for n in 0..8 {
        batches(&store, &|what| key(&format!("{n} {what}"))).await;
    }
    let plans = told(&server.log());
    assert_eq!(plans.len(), 3, "{:#?}", plans.keys());
    for (statement, plan) in plans {
        assert!(goes_by_primary_key(&plan), "{statement}\n{plan}");
    }
}

/// `cargo xtask soak sql`
#[tokio::test]
#[ignore = "takes minutes"]
async fn each_statement_goes_by_the_primary_key_over_10_million_rows() {
    for (statement, plan) in judge(10_000_000).await {
        println!("{statement}\n{plan}\n");
    }
}

/// Whatever the server knows of the table, and whether it plans for the values at hand or for any.
async fn judge(rows: usize) -> BTreeMap<String, String> {
    let server = PostgresServer::start();
    open(&server, "auto").await;
    fill(&server, rows);
    let mut read = server.log().len();
    let mut plans = BTreeMap::new();
    for known in [false, true] {
        if known {
            server.psql("postgres", "VACUUM ANALYZE idempotent_record");
        }
        for mode in ["auto", "force_generic_plan", "force_custom_plan"] {
            everything(&open(&server, mode).await, &format!("{known} {mode}")).await;
            let log = server.log();
            plans = told(&log[read..]);
            read = log.len();
            // The purge of steps deletes steps that are a minute old, which a run on a slow machine has.
            plans.retain(|statement, _| !statement.starts_with("DELETE FROM \"idempotent_record_steps\""));
            assert_eq!(plans.len(), STATEMENTS, "{mode}: {:#?}", plans.keys());
            for (statement, plan) in &plans {
                let at = format!("{rows} rows, analyzed: {known}, {mode}: {statement}\n{plan}");
                assert!(goes_by_primary_key(plan), "{at}");
            }
        }
    }
    plans
}

/// One connection, so that each statement is planned often enough to be planned for any values where that is as good.
async fn open(server: &PostgresServer, mode: &str) -> PostgresStore {
    creating(builder(server, mode)).connect().await.unwrap()
}

pub(super) fn builder(server: &PostgresServer, mode: &str) -> PostgresStoreBuilder {
    let set = ["session_preload_libraries=auto_explain", "auto_explain.log_min_duration=0", "plan_cache_mode="];
    let set: String = set.iter().map(|set| format!("-c%20{}%20", set.replace('=', "%3D"))).collect();
    let url = format!("{}?options={}{mode}", server.url(), set.trim_end_matches("%20"));
    PostgresStore::builder(url).connections(1).timeout(Duration::from_secs(60))
}

/// Inserts rows, half of them expired. The server has no statistics of them yet.
pub(super) fn fill(server: &PostgresServer, rows: usize) {
    for table in row_tables(server, "idempotent_record") {
        server.psql("postgres", &format!("ALTER TABLE {table} SET (autovacuum_enabled = false)"));
    }
    server.psql(
        "postgres",
        &format!(
            "INSERT INTO idempotent_record SELECT decode(md5(i::text),'hex'),1,'a',2,decode(md5(i::text),'hex'),1,1,0,NULL,\
             NULL,CASE WHEN i%2=0 THEN 1 ELSE 9000000000000000 END,1,1,NULL,NULL,NULL FROM generate_series(1,{rows}) AS i"
        ),
    );
}

/// Each statement more than the five times after which a plan for any values is considered.
pub(super) async fn everything(store: &PostgresStore, run: &str) {
    let capabilities = store.capabilities();
    let watch = capabilities.watch.unwrap();
    for n in 0..8 {
        let named = |what: &str| key(&format!("{run} {n} {what}"));
        let verdicts = [ReleaseKind::Delete, ReleaseKind::Vacate, ReleaseKind::MarkDead];
        for (at, verdict) in verdicts.into_iter().enumerate() {
            let key = named(&format!("release {at}"));
            assert!(matches!(store.claim(&request(&key, 1)).await.unwrap(), Claim::Acquired(_)));
            assert_eq!(store.release(&held(&key, 1), &release(verdict)).await.unwrap(), Settled::Done);
        }
        let key = named("complete");
        let short = ClaimRequest { lease: Duration::from_micros(1), ..request(&key, 1) };
        assert!(matches!(store.claim(&short).await.unwrap(), Claim::Acquired(_)));
        let over = store.claim(&request(&key, 2)).await.unwrap();
        let Claim::Acquired(over) = over else { panic!("{over:?}") };
        assert_eq!(store.renew(&held(&key, 2), Duration::from_secs(60)).await.unwrap(), Settled::Done);
        let step_store = capabilities.steps.unwrap();
        let step = StepRecord { name: "lock".into(), place: 0, state: StepState::Done, value: None };
        assert_eq!(step_store.note(&held(&key, 2), &step, Duration::from_secs(60)).await.unwrap(), Settled::Done);
        let steps = step_store.steps(&held(&key, 2), Duration::from_secs(60)).await.unwrap();
        assert!(matches!(steps, StoredSteps::Steps(steps) if steps.len() == 1));
        assert_eq!(store.complete(&held(&key, 2), &done(b"paid")).await.unwrap(), Settled::Done);
        // Looks, and finds it settled.
        watch.watch(&key).await;
        assert!(store.peek(&key).await.unwrap().is_some());
        let admin = capabilities.admin.unwrap();
        let forgotten = admin.forget(&key, FencingToken(over.fencing.0), false, Duration::ZERO).await.unwrap();
        assert_eq!(forgotten, Settled::Done);
        batches(store, &named).await;
        let (search, limits) = (capabilities.search.unwrap(), PageLimits { keys: 100, ..PageLimits::default() });
        let page = search.search(&KeyFilter::all(), Some(u128::MAX / 2), limits).await.unwrap();
        assert_eq!(page.entries.len(), 100);
        assert_eq!(capabilities.purge.unwrap().purge(100).await.unwrap(), 100);
    }
}

async fn batches(store: &PostgresStore, named: &impl Fn(&str) -> Key) {
    let batch = store.capabilities().batch.unwrap();
    let keys: Vec<_> = (0..64).map(|at| named(&format!("batch {at}"))).collect();
    let asks: Vec<_> = keys.iter().map(|key| request(key, 1)).collect();
    assert!(batch.claim_all(&asks).await.iter().all(|claim| matches!(claim, Ok(Claim::Acquired(_)))));
    let longer: Vec<_> = keys.iter().map(|key| (held(key, 1), Duration::from_secs(60))).collect();
    assert!(batch.renew_all(&longer).await.iter().all(|settled| matches!(settled, Ok(Settled::Done))));
    let all: Vec<_> = keys.iter().map(|key| (held(key, 1), done(b"paid"))).collect();
    assert!(batch.complete_all(&all).await.iter().all(|settled| matches!(settled, Ok(Settled::Done))));
}

/// Returns whether a plan searches the record table, or its partitions, by the primary key only.
fn goes_by_primary_key(plan: &str) -> bool {
    let reads_all = plan.split("Seq Scan on ").skip(1).any(|table| of_records(table, ""));
    !reads_all && !by_primary_key(plan).is_empty()
}

/// Returns the primary keys of the record table, or of its partitions, that a plan searches.
pub(super) fn by_primary_key(plan: &str) -> BTreeSet<&str> {
    let indexes = ["Scan using ", "Bitmap Index Scan on "].map(|scan| plan.split(scan).skip(1)).into_iter().flatten();
    indexes
        .filter(|index| of_records(index, "_pkey"))
        .map(|index| index.split_whitespace().next().unwrap_or_default())
        .collect()
}

/// Returns whether a text begins with the name of the record table, or of one of its partitions, and this suffix.
fn of_records(text: &str, suffix: &str) -> bool {
    let name = text.split_whitespace().next().and_then(|name| name.strip_suffix(suffix));
    let partition = name.and_then(|name| name.strip_prefix("idempotent_record"));
    partition.is_some_and(|partition| {
        partition.is_empty() || partition.strip_prefix("_p").is_some_and(|number| number.parse::<u16>().is_ok())
    })
}

/// The plan of each statement, the last one of each.
pub(super) fn told(log: &str) -> BTreeMap<String, String> {
    let mut plans = BTreeMap::new();
    let mut lines = log.lines().peekable();
    while let Some(line) = lines.next() {
        let Some(statement) = line.trim().strip_prefix("Query Text: ") else { continue };
        let mut plan = String::new();
        while let Some(line) = lines.next_if(|line| line.starts_with('\t')) {
            plan += line;
            plan.push('\n');
        }
        if statement.contains("\"idempotent_record\"") {
            plans.insert(statement.to_owned(), plan);
        }
    }
    plans
}
