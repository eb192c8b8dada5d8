//! PGMQ: a queue in a PostgreSQL database.
use std::time::Duration;

use idempotent::pgmq::{PgmqPublisher, PgmqSource};

use super::outgoing::{Lines, publish};
use super::url::SourceUrl;
use super::{Address, Place, Source};

#[derive(Debug)]
pub(crate) struct Pgmq {
    pub(super) at: Address,
}

/// The time after which the messages of a killed worker are delivered again.
const VISIBILITY: Duration = Duration::from_secs(5);

impl Pgmq {
    pub(crate) fn of(mut source: SourceUrl) -> anyhow::Result<Self> {
        let queue = source.need("queue", "queue")?;
        let url = source.into_url("pgmq", "queue")?;
        Ok(Self { at: Address::new(url, "queue", queue) })
    }
}

impl Place for Pgmq {
    async fn source(&self) -> anyhow::Result<impl Source> {
        let source = PgmqSource::builder(&self.at.url, &*self.at.name).declare().visibility_timeout(VISIBILITY);
        source.connect().await.map_err(|error| {
            self.at
                .unusable(&error, "is PostgreSQL there, is PGMQ in the database, and may the user of --source use it?")
        })
    }

    /// Publishes the lines byte for byte.
    async fn publish(&self, lines: Lines) -> anyhow::Result<u64> {
        let publisher = PgmqPublisher::new(&self.at.url).exact_bodies();
        publish(&publisher, &self.at.name, &self.at, lines).await
    }

    fn dead_letters(&self) -> String {
        format!("the queue {}_dead", self.at.name)
    }
}
