//! The effect and the marker in one transaction, compared with an inserted marker, and with the effect alone.

use idempotent::{Call, Executor, Inbox, PostgresStore, Rejection};
use idempotent_harness::servers::PostgresServer;
use sqlx::postgres::{PgConnection, PgPool, PgPoolOptions, Postgres};
use sqlx::query;

use crate::by_hand::id;
use crate::cases::CONCURRENCIES;
use crate::keys;
use crate::report::{Goal, Report};

const STORE: &str = "postgres";
pub const TO_HAND: &str = "inbox, to an insert by hand";
pub const TO_NONE: &str = "inbox, to its handler alone";
pub const EXECUTED: &str = "inbox, one statement, to its handler alone";
const ROUNDS: u64 = 7;
/// The messages of a round, by concurrency.
const MESSAGES: [u64; 2] = [64, 512];
const TO_HAND_GOALS: [f64; 2] = [0.85, 0.85];
const EXECUTED_GOALS: [f64; 2] = [0.9, 0.8];
/// An unused range of numbers.
const FROM: u64 = 1 << 45;

pub async fn all(report: &Report, server: &PostgresServer) {
    if ![TO_HAND, TO_NONE, EXECUTED].iter().any(|case| report.wants(STORE, case)) {
        return;
    }
    let store =
        PostgresStore::builder(server.url()).connections(16).table("inbox").create(true).connect().await.unwrap();
    let inbox = Inbox::<Postgres>::new(&Executor::new(store));
    let pool = PgPoolOptions::new().max_connections(16).test_before_acquire(false);
    let pool = pool.connect(&server.url()).await.unwrap();
    for table in ["CREATE TABLE effect (id bytea)", "CREATE TABLE inbox_by_hand (id bytea PRIMARY KEY, at timestamptz)"]
    {
        query(table).execute(&pool).await.unwrap();
    }
    let mut from = FROM;
    for (at, tasks) in CONCURRENCIES.into_iter().enumerate() {
        let rounds = report.rounds(ROUNDS, MESSAGES[at], tasks);
        for (case, is_joined, is_marked, goal) in [
            (TO_HAND, false, true, Goal::AtLeast(TO_HAND_GOALS[at])),
            (TO_NONE, false, false, Goal::None),
            (EXECUTED, true, false, Goal::AtLeast(EXECUTED_GOALS[at])),
        ] {
            if !report.wants(STORE, case) {
                continue;
            }
            let (inbox, pool) = (inbox.clone(), pool.clone());
            let ours = move |number| {
                let inbox = inbox.clone();
                async move {
                    match is_joined {
                        true => execute(&inbox, number).await,
                        false => run(&inbox, number).await,
                    }
                }
            };
            let floor = move |number| {
                let pool = pool.clone();
                async move { by_hand(&pool, number, is_marked).await }
            };
            let pair = rounds.nanos(from, ours, floor).await.rates();
            from += rounds.rounds * rounds.operations;
            report.pair((STORE, case, usize::try_from(tasks).ok()), "runs/s", pair, goal);
        }
    }
}

/// The same effect as a statement that is executed with the claim.
async fn execute(inbox: &Inbox<Postgres>, number: u64) {
    let insert = query("INSERT INTO effect SELECT $1 FROM claimed").bind(id(number).to_vec());
    let rows =
        inbox.execute::<Box<dyn std::error::Error + Send + Sync>>(Call::new(keys::identity(number)), insert).await;
    assert_eq!(rows.unwrap(), 1);
}

async fn run(inbox: &Inbox<Postgres>, number: u64) {
    let handler = async |mut transaction: idempotent::transaction::InboxTransaction<Postgres>| {
        effect(&mut transaction, number).await;
        Ok::<(), Rejection>(())
    };
    inbox.run(Call::new(keys::identity(number)), handler).await.unwrap();
}

async fn by_hand(pool: &PgPool, number: u64, marked: bool) {
    let mut transaction = pool.begin().await.unwrap();
    if marked {
        let mark =
            query("INSERT INTO inbox_by_hand VALUES ($1, now()) ON CONFLICT DO NOTHING").bind(id(number).to_vec());
        assert_eq!(mark.execute(&mut *transaction).await.unwrap().rows_affected(), 1);
    }
    effect(&mut transaction, number).await;
    transaction.commit().await.unwrap();
}

async fn effect(connection: &mut PgConnection, number: u64) {
    query("INSERT INTO effect VALUES ($1)").bind(id(number).to_vec()).execute(connection).await.unwrap();
}
