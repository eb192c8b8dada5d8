//! A step whose commit nobody tells about.
use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use idempotent_core::{
    Abilities, Auto, Claim, ClaimMode, ClaimRequest, Completion, Executor, Handler, Held, Json, Key, Lent, Outcome,
    Record, Release, Settled, StepRecord, StepsWithin, Store, StoreError, StoreErrorKind, Transact, step_in,
};
use idempotent_sqlx::SqliteStore;

use super::world::{Tx, World};
use crate::{Failure, call, released};

/// Commits steps, and says that it does not know.
#[derive(Clone, Debug)]
struct Silent(SqliteStore);

#[async_trait]
impl Store for Silent {
    async fn claim(&self, request: &ClaimRequest) -> Result<Claim, StoreError> {
        self.0.claim(request).await
    }

    async fn renew(&self, held: &Held, lease: Duration) -> Result<Settled, StoreError> {
        self.0.renew(held, lease).await
    }

    async fn complete(&self, held: &Held, completion: &Completion) -> Result<Settled, StoreError> {
        self.0.complete(held, completion).await
    }

    async fn release(&self, held: &Held, release: &Release) -> Result<Settled, StoreError> {
        self.0.release(held, release).await
    }

    async fn peek(&self, key: &Key) -> Result<Option<Record>, StoreError> {
        self.0.peek(key).await
    }

    fn abilities(&self) -> Abilities<'_> {
        self.0.abilities().with_transact(self)
    }
}

impl Transact for Silent {
    fn one_run(&self, _: ClaimMode) -> Box<dyn Any + Send> {
        Box::new(())
    }

    fn steps_within(&self) -> Box<dyn Any + Send> {
        let own: Arc<dyn StepsWithin<Tx>> = Arc::new(self.clone());
        Box::new(own)
    }

    fn transaction(&self) -> &'static str {
        "none"
    }
}

#[async_trait]
impl StepsWithin<Tx> for Silent {
    async fn begin(&self) -> Result<Tx, StoreError> {
        self.within().begin().await
    }

    async fn commit(&self, transaction: Tx, held: &Held, step: &StepRecord) -> Result<Settled, StoreError> {
        assert_eq!(self.within().commit(transaction, held, step).await.unwrap(), Settled::Done);
        Err(StoreError::new(StoreErrorKind::Ambiguous))
    }
}

impl Silent {
    fn within(&self) -> Arc<dyn StepsWithin<Tx>> {
        let within = self.0.abilities().transact.unwrap().steps_within();
        *within.downcast().unwrap()
    }
}

#[tokio::test]
async fn the_next_run_finds_what_became_of_it() {
    let world = World::new().await;
    let run = async |executor: &Executor| {
        let charge = || async {
            let charge =
                step_in("charge", async |mut tx: Lent<Tx>| Ok::<_, Failure>(world.effect(&mut tx, "a").await?));
            charge.await
        };
        Outcome::capture(executor.run(call("a"), Handler::<Auto, Json, _, _>::new(charge))).await
    };
    let (answer, outcome) = run(&Executor::new(Silent(world.store.clone()))).await;
    answer.unwrap_err();
    released(outcome);
    let (answer, outcome) = run(&world.executor).await;
    answer.unwrap();
    assert_eq!((outcome, world.effects("a").await), (Some(Outcome::Ran), 1));
}
