//! Executors with a store that lacks transactions.
use idempotent_core::{ClaimMode, DefaultReply, Executor, Handler, Json, MemoryStore, Outcome, Rejection};
use idempotent_sqlx::{Inbox, InboxTransaction, SqliteStore};
use sqlx::{Postgres, Sqlite, Transaction};

use crate::inbox::{Failure, call};
use crate::support::Place;

async fn refused<Db: sqlx::Database>(executor: &Executor) -> String {
    // A clone is as good, whatever the database's type can do.
    let inbox = Inbox::<Db>::new(executor).clone();
    let run = inbox.run(call("a"), async |_: InboxTransaction<Db>| Ok::<(), Failure>(()));
    let (answer, outcome) = Outcome::capture(run).await;
    assert_eq!(outcome, Some(Outcome::Misconfigured));
    match answer {
        Err(Failure::Rejected(rejection @ Rejection::NoTransaction { .. })) => rejection.to_string(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_store_that_has_none_or_another_databases_is_named_with_what_was_wanted() {
    let memory = refused::<Postgres>(&Executor::new(MemoryStore::new())).await;
    for part in ["Postgres", "is MemoryStore, which has none at all", "whose store is in the database of the effects"] {
        assert!(memory.contains(part), "{part:?} is not in: {memory}");
    }
    let place = Place::new();
    let sqlite = refused::<Postgres>(&Executor::new(place.open().await)).await;
    for part in ["Postgres", "is SqliteStore, which has `sqlx::Transaction<'_, sqlx::Sqlite>`"] {
        assert!(sqlite.contains(part), "{part:?} is not in: {sqlite}");
    }
}

#[tokio::test]
async fn a_batch_has_no_transactions() {
    let place = Place::new();
    let executor = Executor::new(SqliteStore::open(place.path.to_str().unwrap()).await.unwrap());
    let (call, _lender) = call("a").within::<Transaction<'static, Sqlite>>(&executor, ClaimMode::Inside);
    let handler = Handler::<DefaultReply, Json, Result<(), Failure>, _>::batch(|_| async { panic!("it does not run") });
    let answers = executor.run_batch(vec![(call, ())], handler).await;
    assert_eq!(answers[0].outcome, Outcome::Misconfigured);
}
