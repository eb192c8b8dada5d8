//! The open tables of a process, and their final contents.
use std::time::Duration;

use anyhow::Context;
use idempotent::delay::{DelayTable, DelayTableDeadLetters};
use idempotent::mq::{DeadLetters, StoredLetter};
use sqlx::Pool;

use super::VISIBILITY;
use super::statements::{Task, TaskTables};
use crate::deadline::connected;

/// The interval at which consumers look for tasks of other processes.
const POLL: Duration = Duration::from_millis(50);

pub(super) struct OpenTable<Db: TaskTables> {
    pub(super) pool: Pool<Db>,
    pub(super) table: DelayTable<Db>,
    pub(super) store: Db::Store,
}

/// The final state.
#[derive(Clone, Debug, Default)]
pub(super) struct Remaining {
    pub(super) tasks: Vec<Task>,
    pub(super) effects: Vec<String>,
    /// The ids of the dead letters.
    pub(super) letters: Vec<String>,
}

impl<Db: TaskTables> OpenTable<Db> {
    /// Opens the database and creates all tables.
    pub(super) async fn create(url: &str) -> anyhow::Result<Self> {
        let open = Self::open(url, true).await?;
        let mut connection = open.pool.acquire().await?;
        Db::make(&mut connection).await?;
        Ok(open)
    }

    /// Opens the database once it can be reached.
    pub(super) async fn reach(url: &str) -> Self {
        connected(|| Self::open(url, false)).await
    }

    async fn open(url: &str, create: bool) -> anyhow::Result<Self> {
        let pool = Db::pool(url)?;
        let store = Db::store(&pool, url, create).await?;
        // Only the policy of the handlers limits the attempts.
        let table = DelayTable::builder(pool.clone()).create(create).visibility(VISIBILITY).poll(POLL);
        Ok(Self { table: table.max_lost(1_000_000).open().await?, pool, store })
    }

    /// Returns the number of tasks that are ready, waiting or in flight. Returns `None` if the database does not answer.
    pub(super) async fn unsettled(&self) -> Option<u64> {
        let counts = self.table.counts().await.ok()?;
        Some(counts.ready + counts.waiting + counts.in_flight)
    }

    pub(super) async fn remaining(&self) -> anyhow::Result<Remaining> {
        let mut connection = self.pool.acquire().await.context("the database cannot be reached")?;
        let tasks = Db::tasks(&mut connection).await?;
        let effects = Db::effects(&mut connection).await?;
        drop(connection);
        let (mut dead, mut letters) = (DelayTableDeadLetters::new(&self.table), Vec::new());
        while let Some(StoredLetter { delivery, .. }) = dead.next().await? {
            letters.push(delivery.id.context("a dead letter without an id")?);
        }
        Ok(Remaining { tasks, effects, letters })
    }
}
