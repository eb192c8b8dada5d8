//! The reason for which no name server answers.
use std::time::Duration;

use idempotent_core::__private::url::unreached;
use idempotent_mq::{SourceError, SourceErrorKind};
use rocketmq_client_rust::ClientError;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::client::ClientSettings;
use crate::error::is_unknown_topic;
use crate::producer::{MessageProducer, SEND_TIMEOUT_MS};

/// Time limit of a request to a name server, for which the client waits up to a minute.
const LOOK_UP_LIMIT: Duration = Duration::from_millis(SEND_TIMEOUT_MS);
/// Time limit for the TCP connection that shows whether a server is there.
const PROBE_LIMIT: Duration = Duration::from_secs(2);

/// A request that no name server answers: the cause, and the remedy.
#[derive(Debug)]
pub(crate) struct NoAnswer {
    pub(crate) text: String,
    pub(crate) cause: Option<ClientError>,
}

/// Returns the number of queues of a topic, or the client's error if the name servers do not know the topic.
pub(crate) async fn look_up(
    producer: &MessageProducer,
    settings: &ClientSettings,
    topic: &str,
) -> Result<Result<usize, ClientError>, NoAnswer> {
    let failed = match timeout(LOOK_UP_LIMIT, producer.queue_count(topic)).await {
        Ok(Ok(queues)) => return Ok(Ok(queues)),
        Ok(Err(error)) => Some(error),
        Err(_) => None,
    };
    match failed {
        // The client reports a name server that cannot be reached in the same way.
        Some(error) if is_unknown_topic(&error) && unreachable(settings).await.is_none() => Ok(Err(error)),
        failed => Err(NoAnswer::of(settings, failed).await),
    }
}

impl NoAnswer {
    /// Creates the error of a request that failed, or that had no answer in time.
    pub(crate) async fn of(settings: &ClientSettings, cause: Option<ClientError>) -> Self {
        let text = unreachable(settings).await.unwrap_or_else(|| silence(settings));
        Self { text: format!("connecting to {text}"), cause }
    }
}

impl From<NoAnswer> for SourceError {
    fn from(NoAnswer { text, cause }: NoAnswer) -> Self {
        let error = Self::new(SourceErrorKind::Transient, text);
        match cause {
            Some(cause) => error.with_cause(cause),
            None => error,
        }
    }
}

/// Returns the name servers, and the remedy if none of them answers.
pub(crate) fn silence(settings: &ClientSettings) -> String {
    let security = match settings.uses_tls() {
        true => "whether they accept TLS, and whether `tls_ca` has the authority of their certificates",
        false => "whether they require TLS (`rocketmqs://`)",
    };
    format!(
        "{}: no answer of a name server of RocketMQ in time; check the host and the port (9876 by default, not the port of a \
         broker), and {security}",
        settings.name_servers
    )
}

/// Returns the cause and the remedy if no name server accepts a connection.
async fn unreachable(settings: &ClientSettings) -> Option<String> {
    let mut last = None;
    for address in settings.name_servers.split(';') {
        let cause = match timeout(PROBE_LIMIT, TcpStream::connect(address)).await {
            Ok(Ok(_)) => return None,
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("timed out after {PROBE_LIMIT:?}"),
        };
        last = Some(format!("{address}: {cause}; {}", unreached(&cause)));
    }
    last
}
