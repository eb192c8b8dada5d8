//! `transaction = tx`: effect and record in one transaction of the store's database.
use std::time::Duration;

use idempotent::steps::StepError;
use idempotent::store::{KeyFilter, PageLimits, State, StoreErrorKind};
use idempotent::{Executor, MemoryStore, Outcome, Rejection, SqliteStore, idempotent, step};
use sqlx::{Sqlite, SqlitePool};

/// A type alias, as services define one.
type Tx<'a> = sqlx::Transaction<'a, Sqlite>;

#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Rejection(#[from] Rejection),
    #[error(transparent)]
    Sql(#[from] sqlx::Error),
    #[error("no stock")]
    NoStock,
}

struct Shop {
    idem: Executor,
    pool: SqlitePool,
    _folder: tempfile::TempDir,
}

async fn effect(tx: &mut Tx<'_>, order: u64) -> Result<(), sqlx::Error> {
    sqlx::query("INSERT INTO booking VALUES (?)").bind(order.to_string()).execute(&mut **tx).await.map(drop)
}

#[idempotent(key = order, transaction = tx, scope = "book", with = shop.idem, failed_if = |cents| *cents == 0)]
async fn book(shop: &Shop, order: u64, tx: &mut sqlx::Transaction<'_, Sqlite>, cents: u64) -> Result<u64, Failure> {
    effect(tx, order).await?;
    if cents == 1 {
        return Err(Failure::NoStock);
    }
    Ok(cents)
}

impl Shop {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("shop.db").display().to_string();
        let idem = Executor::new(SqliteStore::open(&path).await.unwrap());
        let pool = SqlitePool::connect(&path).await.unwrap();
        sqlx::query("CREATE TABLE booking (orders TEXT)").execute(&pool).await.unwrap();
        Self { idem, pool, _folder: folder }
    }

    #[idempotent(key = order, transaction = leased(tx), scope = "reserve", with = self.idem, lease = "1s")]
    async fn reserve(&self, tx: &mut Tx<'_>, order: u64) -> Result<(), Failure> {
        // Longer than its lease.
        tokio::time::sleep(Duration::from_millis(1_500)).await;
        effect(tx, order).await?;
        Ok(())
    }

    async fn booked(&self, order: u64) -> i64 {
        let count = sqlx::query_scalar("SELECT count(*) FROM booking WHERE orders = ?");
        count.bind(order.to_string()).fetch_one(&self.pool).await.unwrap()
    }
}

#[idempotent(key = order, transaction = tx, scope = "inside", with = shop.idem)]
async fn stepped(shop: &Shop, order: u64, tx: &mut Tx<'_>) -> Result<(), Failure> {
    step("book", move || async move { Ok::<_, Failure>(effect(tx, order).await?) }).await
}

#[idempotent(key = order, transaction = leased(tx), scope = "leased", with = shop.idem)]
async fn stepped_by_a_lease(shop: &Shop, order: u64, tx: &mut Tx<'_>) -> Result<(), Failure> {
    step("book", move || async move { Ok::<_, Failure>(effect(tx, order).await?) }).await
}

/// A handler for any database, which continues after its caller is dropped.
#[idempotent(key = order, transaction = tx, scope = "any", detach)]
async fn any<Db: sqlx::Database>(order: u64, tx: &mut sqlx::Transaction<'_, Db>) -> Result<u64, Rejection> {
    let _ = tx;
    Ok(order)
}

#[tokio::test]
async fn callers_do_not_pass_it_and_each_call_has_its_effect_once() {
    let shop = Shop::new().await;
    for expected in [Outcome::Ran, Outcome::Replayed] {
        let (answer, outcome) = Outcome::capture(book(&shop, 1, 500)).await;
        assert_eq!((answer.unwrap(), outcome), (500, Some(expected)));
    }
    assert_eq!(shop.booked(1).await, 1);
    for _ in 0..2 {
        shop.reserve(2).await.unwrap();
    }
    assert_eq!(shop.booked(2).await, 1);
}

/// The handler for payment results of a shop: a prefix, the message id and a hash as key, a retention of two hours,
/// and a transaction.
#[tokio::test]
async fn a_callback_of_a_payment_is_booked_once_and_remembered_for_two_hours() {
    #[idempotent(
        scene = mq, prefix = "index12306-order:pay_result_callback", key = (keys, hash), retain = "7200s",
        transaction = tx, scope = "callback", with = shop.idem
    )]
    async fn pay_result(shop: &Shop, keys: u64, hash: i32, tx: &mut Tx<'_>) -> Result<(), Failure> {
        let _ = hash;
        Ok(effect(tx, keys).await?)
    }
    let shop = Shop::new().await;
    for _ in 0..2 {
        pay_result(&shop, 4711, -17).await.unwrap();
    }
    assert_eq!(shop.booked(4711).await, 1);
    pay_result(&shop, 4711, 18).await.unwrap();
    assert_eq!(shop.booked(4711).await, 2, "another message of the same order");
    let search = shop.idem.store().capabilities().search.unwrap();
    let listed = search.search(&KeyFilter::all(), None, PageLimits::default()).await.unwrap().entries;
    assert_eq!(listed.len(), 2);
    for entry in listed {
        let (key, record) = (entry.key, entry.record);
        assert!(key.as_str().starts_with("index12306-order:pay_result_callback:mq:callback:"), "{key}");
        assert_eq!(record.expires_at - record.updated_at, Duration::from_secs(7_200));
    }
}

#[tokio::test]
async fn an_unfinished_body_is_rolled_back_however_it_ends() {
    let shop = Shop::new().await;
    assert!(matches!(book(&shop, 1, 1).await, Err(Failure::NoStock)));
    assert_eq!(book(&shop, 1, 0).await.unwrap(), 0);
    assert_eq!(shop.booked(1).await, 0);
    assert_eq!(book(&shop, 1, 7).await.unwrap(), 7);
    assert_eq!(shop.booked(1).await, 1);
}

#[tokio::test]
async fn a_body_that_ends_its_transaction_is_not_taken_for_done_and_runs_again() {
    /// A statement of the handler, and whether the handler fails.
    type Script = (&'static str, bool);

    async fn send(order: u64, tx: &mut Tx<'_>, (statement, fails): Script) -> Result<u64, Failure> {
        effect(tx, order).await?;
        sqlx::raw_sql(statement).execute(&mut **tx).await?;
        if fails { Err(Failure::NoStock) } else { Ok(500) }
    }
    #[idempotent(key = order, transaction = tx, scope = "inside", with = shop.idem)]
    async fn inside(shop: &Shop, order: u64, tx: &mut Tx<'_>, script: Script) -> Result<u64, Failure> {
        send(order, tx, script).await
    }
    #[idempotent(key = order, transaction = leased(tx), scope = "leased", with = shop.idem)]
    async fn leased(shop: &Shop, order: u64, tx: &mut Tx<'_>, script: Script) -> Result<u64, Failure> {
        send(order, tx, script).await
    }
    let shop = Shop::new().await;
    let mut order = 0;
    for (statement, left) in [("COMMIT", 1), ("ROLLBACK", 0)] {
        for (is_leased, fails) in [(false, true), (false, false), (true, true), (true, false)] {
            order += 1;
            let of = format!("{statement}, leased {is_leased}, fails {fails}");
            let deliver = async |script| match is_leased {
                true => Outcome::capture(leased(&shop, order, script)).await,
                false => Outcome::capture(inside(&shop, order, script)).await,
            };
            let (answer, outcome) = deliver((statement, fails)).await;
            match answer.unwrap_err() {
                Failure::NoStock if fails => {}
                Failure::Rejection(Rejection::RolledBack { cause: Some(cause), .. }) if !fails => {
                    assert_eq!(cause.kind(), StoreErrorKind::TransactionEnded, "{of}: {cause}");
                }
                error => panic!("{of}: {error:?}"),
            }
            assert!(matches!(outcome, Some(Outcome::Released { .. })), "{of}: {outcome:?}");
            assert_eq!(shop.booked(order).await, left, "{of}");
            for expected in [Outcome::Ran, Outcome::Replayed] {
                let (answer, outcome) = deliver(("SELECT 1", false)).await;
                assert_eq!((answer.unwrap(), outcome), (500, Some(expected)), "{of}");
            }
            assert_eq!(shop.booked(order).await, left + 1, "{of}");
        }
    }
}

/// The failure is recorded after the rollback.
#[tokio::test]
async fn the_description_of_a_permanent_failure_is_in_the_record_and_in_the_answer_to_a_duplicate() {
    #[idempotent(
        key = order, transaction = tx, scope = "decline", with = shop.idem,
        permanent = |_| true, describe = |error: &Failure| format!("declined: {error}")
    )]
    async fn decline(shop: &Shop, order: u64, tx: &mut Tx<'_>) -> Result<(), Failure> {
        effect(tx, order).await?;
        Err(Failure::NoStock)
    }
    #[idempotent(
        key = order, transaction = leased(tx), scope = "decline", with = shop.idem,
        permanent = |_| true, describe = |error: &Failure| format!("declined: {error}")
    )]
    async fn decline_by_a_lease(shop: &Shop, order: u64, tx: &mut Tx<'_>) -> Result<(), Failure> {
        effect(tx, order).await?;
        Err(Failure::NoStock)
    }
    for is_leased in [false, true] {
        let shop = Shop::new().await;
        let deliver = async || match is_leased {
            true => Outcome::capture(decline_by_a_lease(&shop, 1)).await,
            false => Outcome::capture(decline(&shop, 1)).await,
        };
        let (answer, outcome) = deliver().await;
        assert!(matches!(answer, Err(Failure::NoStock)), "{answer:?}");
        assert_eq!((outcome, shop.booked(1).await), (Some(Outcome::Failed), 0));
        let search = shop.idem.store().capabilities().search.unwrap();
        let listed = search.search(&KeyFilter::all(), None, PageLimits::default()).await.unwrap().entries;
        let [entry] = &*listed else { panic!("{listed:?}") };
        let State::Failed { error } = &entry.record.state else { panic!("{entry:?}") };
        assert_eq!(&**error, "declined: no stock");
        let (answer, outcome) = deliver().await;
        let again = answer.unwrap_err().to_string();
        assert!(again.ends_with(": declined: no stock"), "{again}");
        assert_eq!(outcome, Some(Outcome::Failed));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_annotated_function_may_be_spawned_detached_and_generic() {
    let shop = std::sync::Arc::new(Shop::new().await);
    let spawned = shop.clone();
    tokio::spawn(async move { book(&spawned, 1, 500).await }).await.unwrap().unwrap();
    let (idem, run) = (shop.idem.clone(), any::<Sqlite>(3));
    assert_eq!(tokio::spawn(async move { idem.scope(run).await }).await.unwrap().unwrap(), 3);
}

#[tokio::test]
async fn a_store_without_such_transactions_is_refused_by_name() {
    let memory = Executor::new(MemoryStore::new());
    let (answer, outcome) = Outcome::capture(memory.scope(any::<Sqlite>(3))).await;
    let error = answer.unwrap_err();
    assert!(matches!(error, Rejection::NoTransaction { .. }), "{error}");
    assert!(error.to_string().contains("this executor's store is MemoryStore"), "{error}");
    assert_eq!(outcome, Some(Outcome::Misconfigured));
    assert!(matches!(any::<Sqlite>(3).await, Err(Rejection::NoExecutor { .. })));
}

/// A step outside of the transaction would remain after a rollback.
#[tokio::test]
async fn a_step_in_a_run_that_has_a_transaction_is_refused_before_it_runs() {
    let shop = Shop::new().await;
    for refused in [stepped(&shop, 1).await, stepped_by_a_lease(&shop, 1).await] {
        let refused = refused.unwrap_err();
        let Failure::Rejection(Rejection::Journal(StepError::InTransaction { step })) = refused else {
            panic!("{refused:?}")
        };
        assert_eq!((&*step, shop.booked(1).await), ("book", 0));
    }
}
