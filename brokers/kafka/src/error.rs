//! Conversion of client and server errors into errors of a source.
use std::error::Error;

use idempotent_mq::{PublishError, PublishErrorKind, SourceError, SourceErrorKind};
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};

/// Creates an error for a setting or a state that a retry does not change.
pub(crate) fn fatal(doing: &str, remedy: &str) -> SourceError {
    SourceError::new(SourceErrorKind::Fatal, format!("{doing}: {remedy}"))
}

/// Creates an error of one message, which a retry does not change.
pub(crate) fn refused(doing: &str, remedy: &str) -> SourceError {
    SourceError::new(SourceErrorKind::Refused, format!("{doing}: {remedy}"))
}

/// Creates an error that a retry may solve.
pub(crate) fn transient(doing: &str, error: impl Error + Send + Sync + 'static) -> SourceError {
    SourceError::new(SourceErrorKind::Transient, format!("{doing}: {error}")).with_cause(error)
}

/// Converts an error of the client.
pub(crate) fn failure(doing: &str, error: KafkaError) -> SourceError {
    if let KafkaError::ClientConfig(_, description, name, _) = &error {
        return fatal(doing, &format!("the property `{name}` is invalid: {description}; check the URL"));
    }
    if let KafkaError::ClientCreation(reason) = &error {
        // A file of the options is missing or damaged.
        return fatal(doing, &format!("{reason}; check the URL"));
    }
    let code = error.rdkafka_error_code();
    let is_fatal = matches!(error, KafkaError::MessageConsumptionFatal(_));
    match code.and_then(remedy) {
        Some(remedy) => SourceError::new(SourceErrorKind::Fatal, format!("{doing}: {}; {remedy}", words(&error))),
        None if is_fatal => SourceError::new(SourceErrorKind::Fatal, format!("{doing}: {}", words(&error))),
        None => SourceError::new(SourceErrorKind::Transient, format!("{doing}: {}{}", words(&error), hint(code))),
    }
    .with_cause(error)
}

/// Returns the question that leads to the cause of a temporary error, or an empty text.
fn hint(code: Option<Code>) -> &'static str {
    match code {
        Some(Code::AllBrokersDown | Code::BrokerTransportFailure | Code::Resolve) => {
            "; is a broker running, and is the address right?"
        }
        _ => "",
    }
}

/// Converts an error of a client that was connected before. `reason` returns the reason of an error that ends the client.
pub(crate) fn receive_failure(error: KafkaError, reason: impl FnOnce() -> Option<(Code, String)>) -> SourceError {
    match error.rdkafka_error_code() {
        // A broker that restarts ends a handshake.
        Some(Code::SSL) => transient("receiving", error),
        Some(Code::Fatal) => {
            let reason = reason().map(|(code, _)| KafkaError::MessageConsumptionFatal(code));
            failure("receiving", reason.unwrap_or(error))
        }
        _ => failure("receiving", error),
    }
}

/// Converts an error of a transaction. One that was aborted may be repeated.
pub(crate) fn transaction_failure(error: KafkaError, is_aborted: bool) -> SourceError {
    const DOING: &str = "committing a transaction";
    let remedy = error.rdkafka_error_code().and_then(remedy);
    match remedy {
        None if is_aborted => {
            SourceError::new(SourceErrorKind::Transient, format!("{DOING}: {}; it is aborted", words(&error)))
        }
        remedy => {
            let remedy =
                remedy.unwrap_or("start the consumer again: the broker commits all of the transaction or nothing");
            SourceError::new(SourceErrorKind::Fatal, format!("{DOING}: {}; {remedy}", words(&error)))
        }
    }
    .with_cause(error)
}

/// Returns the text of the error code, since the client's text repeats the name of the operation.
fn words(error: &KafkaError) -> String {
    error.rdkafka_error_code().map_or_else(|| error.to_string(), |code| code.to_string())
}

/// Returns the remedy of an error that remains.
pub(crate) fn remedy(code: Code) -> Option<&'static str> {
    Some(match code {
        Code::Authentication | Code::SaslAuthenticationFailed => {
            "check the user, the password and the SASL mechanism in the URL"
        }
        Code::UnsupportedSASLMechanism => "choose a mechanism of the broker by `sasl_mechanism` in the URL",
        Code::SSL => {
            "check the scheme of the URL, the certificate authority (`tls_ca`), and the certificate of the client (`tls_certificate`)"
        }
        Code::UnknownTopicOrPartition | Code::UnknownTopic => {
            "create the topic by `declare` on the builder, or by `kafka-topics --create`"
        }
        Code::TopicAuthorizationFailed => "permit the user READ and WRITE on the topics",
        Code::GroupAuthorizationFailed => "permit the user READ on the group",
        Code::ClusterAuthorizationFailed => "permit the user this operation on the cluster",
        Code::InvalidGroupId | Code::InconsistentGroupProtocol => {
            "choose another group: the members of this group use other settings"
        }
        Code::Fenced | Code::ProducerFenced | Code::InvalidProducerEpoch => {
            "another process has the same `transactions` id; give each process an id of its own"
        }
        Code::TransactionalIdAuthorizationFailed => "permit the user WRITE on the transactional id",
        Code::FencedInstanceId => "another process has the same `member`; give each process a name of its own",
        Code::InvalidSessionTimeout => "set `session_timeout` to a time that the broker permits",
        // Reading on would lose the messages.
        Code::NotImplemented | Code::UnsupportedCompressionType => {
            "a message is compressed by a codec that this build lacks; enable the feature `zstd`"
        }
        Code::BadCompression | Code::BadMessage => "a message is damaged; move the offset of the group past it",
        Code::MessageSizeTooLarge => {
            "raise `message.max.bytes` of the client and `max.message.bytes` of the topic, or send a shorter body"
        }
        _ => return None,
    })
}

/// Converts an error of producing. `connection` is the last error of the connection.
pub(crate) fn publish_failure(topic: &str, error: KafkaError, connection: Option<String>) -> PublishError {
    let code = error.rdkafka_error_code();
    let (kind, remedy) = match code {
        Some(Code::QueueFull) => (PublishErrorKind::Unsent, None),
        Some(code) => match remedy(code) {
            Some(remedy) => (PublishErrorKind::Refused, Some(remedy)),
            None if is_refusal(code) => (PublishErrorKind::Refused, None),
            None => (PublishErrorKind::Unconfirmed, None),
        },
        None => (PublishErrorKind::Refused, None),
    };
    let is_unsent = matches!(code, Some(Code::MessageTimedOut | Code::AllBrokersDown | Code::BrokerTransportFailure));
    let connection = connection.filter(|_| is_unsent);
    let remedy = connection.as_deref().or(remedy).map(|remedy| format!("; {remedy}")).unwrap_or_default();
    PublishError::new(kind, format!("producing to `{topic}`: {}{remedy}", words(&error))).with_cause(error)
}

fn is_refusal(code: Code) -> bool {
    matches!(
        code,
        Code::UnknownPartition
            | Code::InvalidTopic
            | Code::InvalidRecord
            | Code::PolicyViolation
            | Code::InvalidRequiredAcks
            | Code::MessageBatchTooLarge
    )
}

/// Returns true if the client or the broker refused a message because of its size.
pub(crate) fn is_too_large(error: &(dyn Error + 'static)) -> bool {
    matches!(code(error), Some(Code::MessageSizeTooLarge | Code::MessageBatchTooLarge))
}

/// Returns true if the client refused a message because its topic has fewer partitions.
pub(crate) fn is_partition_missing(error: &(dyn Error + 'static)) -> bool {
    matches!(code(error), Some(Code::UnknownPartition))
}

/// Returns the code of the client's error that caused this one.
fn code(error: &(dyn Error + 'static)) -> Option<Code> {
    match error.downcast_ref::<KafkaError>() {
        Some(error) => error.rdkafka_error_code(),
        None => code(error.source()?),
    }
}

/// Converts an error of producing a copy of a message.
pub(crate) fn copy_failure(doing: &str, error: PublishError) -> SourceError {
    let kind = match error.kind() {
        PublishErrorKind::Refused if is_too_large(&error) || code(&error) == Some(Code::InvalidRecord) => {
            SourceErrorKind::Refused
        }
        PublishErrorKind::Refused => SourceErrorKind::Fatal,
        _ => SourceErrorKind::Transient,
    };
    SourceError::new(kind, format!("{doing}: {error}")).with_cause(error)
}
