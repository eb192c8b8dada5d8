//! Amazon SQS: a standard queue.
use std::fmt;
use std::time::Duration;

use anyhow::anyhow;
use idempotent::sqs::aws_sdk_sqs::Client;
use idempotent::sqs::{SqsPublisher, SqsSource, client};

use super::outgoing::{Lines, publish};
use super::url::SourceUrl;
use super::{Address, Place, Source};

pub(crate) struct Sqs {
    client: Client,
    pub(super) at: Address,
}

/// The time after which the messages of a killed worker are delivered again.
const VISIBILITY: Duration = Duration::from_secs(5);

impl Sqs {
    pub(crate) fn of(mut source: SourceUrl) -> anyhow::Result<Self> {
        let (queue, endpoint) = (source.need("queue", "queue")?, source.take("endpoint"));
        let at = Address::new(source.into_url("sqs", "queue and endpoint")?, "queue", queue);
        let url = endpoint.map_or_else(|| at.shown.clone(), |endpoint| format!("{}?endpoint={endpoint}", at.shown));
        let client = client(&url).map_err(|error| anyhow!("--source {}: {error}", at.shown))?;
        Ok(Self { client, at })
    }
}

impl Place for Sqs {
    async fn source(&self) -> anyhow::Result<impl Source> {
        let source = SqsSource::builder(self.client.clone(), &*self.at.name).declare().visibility_timeout(VISIBILITY);
        let hint = "may the credentials in the environment use both queues?";
        source.connect().await.map_err(|error| self.at.unusable(&error, hint))
    }

    async fn publish(&self, lines: Lines) -> anyhow::Result<u64> {
        publish(&SqsPublisher::new(self.client.clone()), &self.at.name, &self.at, lines).await
    }

    fn dead_letters(&self) -> String {
        format!("the queue {}-dead", self.at.name)
    }
}

/// Shows no credentials.
impl fmt::Debug for Sqs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sqs").field("queue", &self.at.name).finish_non_exhaustive()
    }
}
