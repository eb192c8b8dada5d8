//! The reason for which a client cannot connect.
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use idempotent_core::__private::url::unreached;
use idempotent_mq::{SourceError, SourceErrorKind};
use rdkafka::ClientConfig;
use rdkafka::consumer::ConsumerContext;
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};

use crate::error::{failure, remedy};

/// The last error of a connection. Only the client's report names the broker and the cause: the error of a call is a general one.
#[derive(Clone, Debug, Default)]
pub(crate) struct ConnectionError(Arc<Mutex<Option<(Code, String)>>>);

/// A context that keeps the last error of a connection.
pub(crate) trait KeepsError: ConsumerContext + 'static {
    fn connection_error(&self) -> &ConnectionError;
}

impl ConnectionError {
    /// Records an error that the client reports. One that a retry does not change is kept until the next connection.
    pub(crate) fn note(&self, error: &KafkaError, reason: &str) {
        // All brokers are down: an earlier report has the cause.
        let Some(code) = error.rdkafka_error_code().filter(|code| *code != Code::AllBrokersDown) else { return };
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if of_refusal(code).is_some() || last.as_ref().is_none_or(|(code, _)| of_refusal(*code).is_none()) {
            *last = Some((code, reason.to_owned()));
        }
    }

    /// Removes the error after an answer of the broker.
    pub(crate) fn clear(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Returns the kind of the error and its text: the address, the cause and the remedy.
    pub(crate) fn explain(&self) -> Option<(SourceErrorKind, String)> {
        let (code, reason) = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()?;
        let (kind, remedy) = match of_refusal(code) {
            Some(_) if reason.contains("wrong version number") => {
                (SourceErrorKind::Fatal, "the broker does not answer by TLS: use `kafka://`, or the port for TLS")
            }
            Some(remedy) => (SourceErrorKind::Fatal, remedy),
            None => (SourceErrorKind::Transient, of_transport(&reason)),
        };
        Some((kind, format!("{reason}; {remedy}")))
    }

    /// Converts the error of a call that waited for a connection.
    pub(crate) fn of_call(&self, config: &ClientConfig, waited: Duration, error: KafkaError) -> SourceError {
        let (hosts, code) = (config.get("bootstrap.servers").unwrap_or_default(), error.rdkafka_error_code());
        match self.explain() {
            Some((kind, text)) => SourceError::new(kind, format!("connecting: {text}")).with_cause(error),
            // The client does not report a broker that closes the connection at the first request.
            None if matches!(code, Some(Code::BrokerTransportFailure | Code::OperationTimedOut)) => {
                let text = format!("connecting to {hosts}: no answer of Kafka within {waited:?}; {CHECK}");
                SourceError::new(SourceErrorKind::Transient, text).with_cause(error)
            }
            None => failure(&format!("connecting to {hosts}"), error),
        }
    }
}

const CHECK: &str = "check the host and the port, whether the broker requires TLS (`kafkas://`) or a user, and its log";

/// Returns the remedy for a connection that the broker refuses.
fn of_refusal(code: Code) -> Option<&'static str> {
    // The client reports an answer of another protocol as a damaged message.
    remedy(code).filter(|_| code != Code::BadMessage)
}

/// Returns the remedy for a connection that failed or ended.
fn of_transport(reason: &str) -> &'static str {
    let has = |parts: &[&str]| parts.iter().any(|part| reason.contains(part));
    if has(&["nvalid response size"]) {
        "the answer is not of Kafka: check the host and the port"
    } else if has(&["Failed to resolve"]) {
        "check the host name"
    } else if has(&["isconnected", "roken pipe", "reset"]) {
        CHECK
    } else {
        unreached(reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broker_without_tls_is_named_with_the_other_scheme() {
        let last = ConnectionError::default();
        last.note(&KafkaError::Global(Code::SSL), "SSL handshake failed: wrong version number");
        let (kind, text) = last.explain().unwrap_or((SourceErrorKind::Gone, String::new()));
        assert!(kind == SourceErrorKind::Fatal && text.contains("use `kafka://`"), "{kind:?}: {text}");
    }

    #[test]
    fn an_answer_of_the_broker_is_not_taken_for_silence() {
        let of = |code| {
            ConnectionError::default().of_call(&ClientConfig::new(), Duration::ZERO, KafkaError::MetadataFetch(code))
        };
        assert!(of(Code::OperationTimedOut).to_string().contains("no answer of Kafka"));
        assert!(!of(Code::TopicAuthorizationFailed).to_string().contains("no answer of Kafka"));
    }
}
