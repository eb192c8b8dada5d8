//! Transactions that cannot be committed.
use idempotent_core::{Call, Claim, Executor, Identity, Outcome, Rejection, Scene, Store, StoreErrorKind};
use idempotent_sqlx::{Inbox, InboxTransaction};
use sqlx::{AssertSqlSafe, Postgres};

use crate::postgres::fixture::{Place, sql};
use crate::postgres::setup::refused;
use crate::support::{done, held, key, request};

/// Its snapshot is older than what another has committed: no statement could see that, and the transaction is over.
#[tokio::test]
async fn a_serialization_failure_is_retried_and_sees_the_other_transaction() {
    for level in ["REPEATABLE READ", "SERIALIZABLE"] {
        let place = Place::new();
        let (store, pool, a) = (place.open().await, place.other(), key("a"));
        let begin = format!("BEGIN ISOLATION LEVEL {level}");
        let mut tx = pool.begin_with(AssertSqlSafe(begin.clone())).await.unwrap();
        let look = format!("SELECT 1 FROM {}", place.table);
        sqlx::query(AssertSqlSafe(look)).execute(&mut *tx).await.unwrap();
        store.claim(&request(&a, 1)).await.unwrap();
        store.complete(&held(&a, 1), &done(b"paid")).await.unwrap();
        let claim = store.claim_in(&mut tx, &request(&a, 2)).await;
        refused(claim, StoreErrorKind::RolledBack, &["lock conflict with another transaction", "40001"]);
        tx.rollback().await.unwrap();

        let mut tx = pool.begin_with(AssertSqlSafe(begin)).await.unwrap();
        let claim = store.claim_in(&mut tx, &request(&a, 2)).await.unwrap();
        assert!(matches!(claim, Claim::Consumed(_)), "{level}: {claim:?}");
        let fresh = store.claim_in(&mut tx, &request(&key("b"), 2)).await.unwrap();
        assert!(matches!(fresh, Claim::Acquired(_)), "{level}: {fresh:?}");
        tx.commit().await.unwrap();
    }
}

/// If a worker recorded the message as done before the commit, or ignored the result of the commit, the message would
/// be lost.
#[tokio::test]
async fn a_commit_that_fails_never_leaves_a_key_consumed() {
    let place = Place::new();
    let effects = format!("{}_effects", place.table);
    // Looked at by the commit, and not by the insert.
    sql(&format!("CREATE TABLE {effects} (key text UNIQUE DEFERRABLE INITIALLY DEFERRED)"));
    sql(&format!("INSERT INTO {effects} VALUES ('k')"));
    let executor = Executor::new(place.open().await);
    for (inbox, name) in [(Inbox::<Postgres>::new(&executor), "inside"), (Inbox::leased(&executor), "leased")] {
        let deliver = async || {
            let call = Call::new(Identity::new(Scene::Mq, "commits", name));
            let insert = format!("INSERT INTO {effects} VALUES ('k')");
            let effect = async |mut tx: InboxTransaction<Postgres>| {
                let row = sqlx::query(AssertSqlSafe(insert)).execute(&mut **tx).await;
                Ok::<_, Rejection>(row.unwrap().rows_affected())
            };
            Outcome::capture(inbox.run(call, effect)).await
        };
        for _ in 0..2 {
            let (answer, outcome) = deliver().await;
            assert!(matches!(answer, Err(Rejection::RolledBack { .. })), "{answer:?}");
            assert!(matches!(outcome, Some(Outcome::Released { .. })), "not done, and to be delivered again");
        }
        sql(&format!("DELETE FROM {effects}"));
        assert_eq!(deliver().await.1, Some(Outcome::Ran));
        assert_eq!(deliver().await.1, Some(Outcome::Replayed));
        assert_eq!(sql(&format!("SELECT count(*) FROM {effects}")), "1");
    }
}
