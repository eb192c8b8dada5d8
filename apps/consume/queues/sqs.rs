//! Amazon SQS: a standard queue.
use std::fmt;
use std::time::Duration;

use anyhow::anyhow;
use idempotent::sqs::aws_sdk_sqs::Client;
use idempotent::sqs::{SqsPublisher, SqsSource, client};

use super::outgoing::Lines;
use super::url::{SourceUrl, shown};
use super::{publishing, told};

pub(crate) struct Sqs {
    client: Client,
    shown: String,
    queue: String,
}

/// The time after which the messages of a killed worker are delivered again.
const VISIBILITY: Duration = Duration::from_secs(5);

impl Sqs {
    pub(crate) fn of(mut source: SourceUrl) -> anyhow::Result<Self> {
        let (queue, endpoint) = (source.need("queue", "queue")?, source.take("endpoint"));
        let shown = shown(&source.into_url("sqs", "queue and endpoint")?);
        let url = endpoint.map_or_else(|| shown.clone(), |endpoint| format!("{shown}?endpoint={endpoint}"));
        let client = client(&url).map_err(|error| anyhow!("--source {shown}: {error}"))?;
        Ok(Self { client, shown, queue })
    }

    pub(crate) async fn source(&self) -> anyhow::Result<SqsSource> {
        let source = SqsSource::builder(self.client.clone(), &*self.queue).declare().visibility_timeout(VISIBILITY);
        source.connect().await.map_err(|error| {
            anyhow!("cannot use {self}: {}; may the credentials in the environment use both queues?", told(&error))
        })
    }

    /// Publishes the lines. Returns the number of confirmed messages.
    pub(crate) async fn publish(&self, lines: Lines) -> anyhow::Result<u64> {
        publishing::publish(&SqsPublisher::new(self.client.clone()), &self.queue, self, lines).await
    }

    pub(crate) fn dead_letters(&self) -> String {
        format!("the queue {}-dead", self.queue)
    }
}

impl fmt::Display for Sqs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the queue {} at {}", self.queue, self.shown)
    }
}

/// Shows no credentials.
impl fmt::Debug for Sqs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sqs").field("queue", &self.queue).finish_non_exhaustive()
    }
}
