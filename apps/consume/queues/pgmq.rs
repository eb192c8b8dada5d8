//! PGMQ: a queue in a PostgreSQL database.
use std::fmt;
use std::time::Duration;

use anyhow::anyhow;
use idempotent::pgmq::{PgmqPublisher, PgmqSource};

use super::outgoing::Lines;
use super::url::{SourceUrl, shown};
use super::{publishing, told};

#[derive(Debug)]
pub(crate) struct Pgmq {
    /// The URL with its password.
    url: String,
    shown: String,
    queue: String,
}

/// The time after which the messages of a killed worker are delivered again.
const VISIBILITY: Duration = Duration::from_secs(5);

impl Pgmq {
    pub(crate) fn of(mut source: SourceUrl) -> anyhow::Result<Self> {
        let queue = source.need("queue", "queue")?;
        let url = source.into_url("pgmq", "queue")?;
        Ok(Self { shown: shown(&url), url: url.into(), queue })
    }

    pub(crate) async fn source(&self) -> anyhow::Result<PgmqSource> {
        let source = PgmqSource::builder(&self.url, &*self.queue).declare().visibility_timeout(VISIBILITY);
        source.connect().await.map_err(|error| {
            anyhow!(
                "cannot use {self}: {}; is PostgreSQL there, is PGMQ in the database, and may the user of --source use it?",
                told(&error)
            )
        })
    }

    /// Publishes the lines byte for byte. Returns the number of stored messages.
    pub(crate) async fn publish(&self, lines: Lines) -> anyhow::Result<u64> {
        let publisher = PgmqPublisher::new(&self.url).exact_bodies();
        publishing::publish(&publisher, &self.queue, self, lines).await
    }

    pub(crate) fn dead_letters(&self) -> String {
        format!("the queue {}_dead", self.queue)
    }
}

impl fmt::Display for Pgmq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the queue {} at {}", self.queue, self.shown)
    }
}
