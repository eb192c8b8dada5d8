//! Conversion of errors of the client into errors of a source or a publisher.
use std::error::Error;

use aws_sdk_sqs::config::http::HttpResponse;
use aws_sdk_sqs::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_sqs::types::BatchResultErrorEntry;
use idempotent_mq::{PublishError, PublishErrorKind, SourceError, SourceErrorKind};

/// The consequence of an error.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Consequence {
    /// The request had no effect, and a retry may succeed.
    Temporary,
    /// The request may have taken effect, and a retry may succeed.
    Unknown,
    /// The receipt handle is no longer valid.
    Gone,
    /// The queue does not exist.
    Missing,
    /// SQS refuses this message, and may accept others.
    Refused,
    /// A retry fails in the same way.
    Permanent,
}

/// The meaning of an error: its consequence, and a text with the remedy.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    consequence: Consequence,
    text: String,
}

/// Creates an error for a setting or a state that a retry does not change.
pub(crate) fn fatal(doing: &str, remedy: &str) -> SourceError {
    SourceError::new(SourceErrorKind::Fatal, format!("{doing}: {remedy}"))
}

/// Creates an error of one message, which a retry does not change.
pub(crate) fn refused_message(doing: &str, remedy: &str) -> SourceError {
    SourceError::new(SourceErrorKind::Refused, format!("{doing}: {remedy}"))
}

/// Creates an error that a retry may solve.
pub(crate) fn transient(doing: &str, text: &str) -> SourceError {
    SourceError::new(SourceErrorKind::Transient, format!("{doing}: {text}"))
}

impl Failure {
    /// Interprets an error of a request.
    pub(crate) fn of<E>(doing: &str, error: &SdkError<E, HttpResponse>) -> Self
    where
        E: Error + ProvideErrorMetadata + 'static,
    {
        let (consequence, text) = match error {
            SdkError::ServiceError(refusal) => {
                let status = refusal.raw().status().as_u16();
                match (status, refusal.err().code()) {
                    (400..=499, Some(code)) => refused(code, refusal.err().message().unwrap_or_default()),
                    // An unreadable answer, or one of a server on the way. The request may have taken effect.
                    (_, Some(code)) => (Consequence::Unknown, format!("SQS fails with the status {status} ({code})")),
                    (_, None) => {
                        let remedy = if matches!(status, 401 | 403) { CREDENTIALS } else { OTHER };
                        let text = format!("the server fails with the status {status} (without a code); {remedy}");
                        (Consequence::Unknown, text)
                    }
                }
            }
            SdkError::ConstructionFailure(_) => (Consequence::Permanent, format!("{}; {CLIENT}", chain(error))),
            SdkError::TimeoutError(_) => (Consequence::Unknown, format!("{}; {TIMEOUT}", chain(error))),
            SdkError::ResponseError(_) => (Consequence::Unknown, format!("{}; {ENDPOINT}", chain(error))),
            _ => unanswered(chain(error)),
        };
        Self { consequence, text: format!("{doing}: {text}") }
    }

    /// Interprets the error of one entry of a batch.
    pub(crate) fn of_entry(doing: &str, entry: &BatchResultErrorEntry) -> Self {
        let message = entry.message().unwrap_or_default();
        let (consequence, text) = match entry.sender_fault() {
            true => refused(entry.code(), message),
            false => (Consequence::Temporary, format!("SQS fails ({})", entry.code())),
        };
        Self { consequence, text: format!("{doing}: {text}") }
    }

    /// Creates the failure of a message whose queue cannot be opened, because of this error.
    pub(crate) fn permanent(error: &SourceError) -> Self {
        Self { consequence: Consequence::Permanent, text: error.to_string() }
    }

    /// Creates the failure of a request without an answer.
    pub(crate) fn silent(doing: &str, seconds: u64) -> Self {
        Self { consequence: Consequence::Unknown, text: format!("{doing}: no answer within {seconds} s; {ENDPOINT}") }
    }

    pub(crate) fn is_missing_queue(&self) -> bool {
        self.consequence == Consequence::Missing
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.consequence == Consequence::Gone
    }

    pub(crate) fn source(&self) -> SourceError {
        let kind = match self.consequence {
            Consequence::Permanent | Consequence::Missing => SourceErrorKind::Fatal,
            Consequence::Gone => SourceErrorKind::Gone,
            Consequence::Refused => SourceErrorKind::Refused,
            Consequence::Temporary | Consequence::Unknown => SourceErrorKind::Transient,
        };
        SourceError::new(kind, self.text.as_str())
    }

    pub(crate) fn publish(&self) -> PublishError {
        let kind = match self.consequence {
            Consequence::Permanent | Consequence::Refused | Consequence::Missing | Consequence::Gone => {
                PublishErrorKind::Refused
            }
            Consequence::Temporary => PublishErrorKind::Unsent,
            Consequence::Unknown => PublishErrorKind::Unconfirmed,
        };
        PublishError::new(kind, self.text.as_str())
    }
}

/// Returns the text of an error with its causes.
fn chain(error: &dyn Error) -> String {
    let (mut text, mut cause) = (error.to_string(), error.source());
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

/// Interprets the text of an error that is not an answer of the server.
fn unanswered(text: String) -> (Consequence, String) {
    // The client has no type for these.
    let lower = text.to_ascii_lowercase();
    if lower.contains("invalid peer certificate") {
        (Consequence::Temporary, format!("{text}; {AUTHORITY}"))
    } else if lower.contains("credentials") {
        (Consequence::Temporary, format!("{text}; {CLIENT}"))
    } else if lower.contains("received corrupt message") {
        (Consequence::Temporary, format!("{text}; {PLAIN}"))
    } else if lower.contains("(connect)") {
        (Consequence::Temporary, format!("{text}; {ENDPOINT}"))
    } else {
        (Consequence::Unknown, format!("{text}; {OTHER}"))
    }
}

const CLIENT: &str = "set the region and the credentials of the client, such as by `aws_config::load_from_env`";
const TIMEOUT: &str = "set the timeouts of the client above the wait of `long_poll`";
const ENDPOINT: &str = "check the region and the endpoint of the client, and the network";
const OTHER: &str =
    "check that the endpoint of the client is one of SQS, with `https://` if it requires TLS, and the network";
const PLAIN: &str = "the server does not answer by TLS: use an endpoint with `http://`, or the port for HTTPS";
const AUTHORITY: &str =
    "trust the authority of this certificate, by the variable `SSL_CERT_FILE` or by the `http_client` of the client";
const CREATE: &str = "create the queue, by `declare` on the builder or by `aws sqs create-queue`, or check the name, the region and the account";
const CREDENTIALS: &str = "check the credentials and the region of the client, and the clock of this machine";
const ALLOW: &str = "allow the role sqs:GetQueueUrl, sqs:GetQueueAttributes, sqs:ReceiveMessage, sqs:ChangeMessageVisibility and \
                     sqs:DeleteMessage on the queue, sqs:SendMessage on the queues that it sends to, and sqs:CreateQueue if it \
                     declares queues";
const KEY: &str = "allow the role kms:Decrypt and kms:GenerateDataKey on the key of the queue";
const IN_FLIGHT: &str = "too many messages of the queue are in flight; settle them, or lower the prefetch";
const ADDRESS: &str = "use the name of a queue, or a URL such as `https://sqs.REGION.amazonaws.com/ACCOUNT/QUEUE`";
const OTHER_ATTRIBUTES: &str = "it exists with other attributes; leave `declare` out";

/// Interprets a refusal by its code and message.
fn refused(code: &str, message: &str) -> (Consequence, String) {
    use Consequence::{Gone, Missing, Permanent, Refused, Temporary, Unknown};
    let short = code.strip_prefix("AWS.SimpleQueueService.").unwrap_or(code);
    let is_over =
        ["has expired", "not available for visibility timeout change"].iter().any(|part| message.contains(part));
    let (consequence, remedy) = match short {
        "NonExistentQueue" | "QueueDoesNotExist" => (Missing, CREATE),
        "ReceiptHandleIsInvalid" | "MessageNotInflight" => (Gone, OVER),
        "InvalidParameterValue" if is_over => (Gone, OVER),
        "InvalidParameterValue" if message.contains("must be shorter") => (Refused, SHORTER),
        "BatchRequestTooLong" => (Refused, "SQS refuses the request; it accepts at most 1 MiB: send a shorter message"),
        "InvalidMessageContents" => (Refused, "SQS refuses the request"),
        "AccessDenied" | "AccessDeniedException" | "NotAuthorized" => (Permanent, ALLOW),
        "AuthFailure"
        | "IncompleteSignature"
        | "InvalidAccessKeyId"
        | "InvalidClientTokenId"
        | "InvalidSignatureException"
        | "MissingAuthenticationToken"
        | "OptInRequired"
        | "SignatureDoesNotMatch"
        | "UnrecognizedClientException" => (Permanent, CREDENTIALS),
        "ExpiredToken" | "ExpiredTokenException" | "RequestExpired" => (Temporary, CREDENTIALS),
        "InvalidAddress" => (Permanent, ADDRESS),
        "InvalidSecurity" => (Permanent, "use an endpoint with HTTPS"),
        "QueueAlreadyExists" | "QueueNameExists" => (Permanent, OTHER_ATTRIBUTES),
        "QueueDeletedRecently" => (Temporary, "a queue of this name was deleted; repeat the call after 60 s"),
        "OverLimit" => (Temporary, IN_FLIGHT),
        "KmsThrottled" | "RequestThrottled" | "Throttling" | "ThrottlingException" | "TooManyRequestsException" => {
            (Temporary, "SQS limits the rate of requests")
        }
        _ if short.starts_with("Kms") => (Permanent, KEY),
        "InternalError" | "InternalFailure" | "ServiceUnavailable" => (Unknown, "SQS fails"),
        _ => (Permanent, "SQS refuses the request"),
    };
    (consequence, format!("{message} ({code}); {remedy}"))
}

/// The remedy for a message that is too large.
pub(crate) const SHORTER: &str =
    "SQS refuses the request; send a shorter message, or raise `MaximumMessageSize` of the queue";
const OVER: &str = "the message is settled, or its visibility timeout is over and SQS delivers it again";

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the kinds of the errors for a refusal with this code and message.
    fn kinds(code: &str, message: &str) -> (SourceErrorKind, PublishErrorKind) {
        let (consequence, text) = refused(code, message);
        let failure = Failure { consequence, text };
        (failure.source().kind(), failure.publish().kind())
    }

    #[test]
    fn a_refusal_tells_whether_a_retry_may_succeed() {
        use PublishErrorKind::{Refused, Unconfirmed, Unsent};
        use SourceErrorKind::{Fatal, Gone, Transient};
        let expired = "Value x for parameter ReceiptHandle is invalid. Reason: The receipt handle has expired.";
        let settled = "Reason: Message does not exist or is not available for visibility timeout change.";
        for (code, message, expected) in [
            ("AWS.SimpleQueueService.NonExistentQueue", "", (Fatal, Refused)),
            ("QueueDoesNotExist", "", (Fatal, Refused)),
            ("AccessDenied", "", (Fatal, Refused)),
            ("InvalidClientTokenId", "", (Fatal, Refused)),
            ("KmsDisabled", "", (Fatal, Refused)),
            ("InvalidMessageContents", "", (SourceErrorKind::Refused, Refused)),
            ("AWS.SimpleQueueService.BatchRequestTooLong", "", (SourceErrorKind::Refused, Refused)),
            ("", "", (Fatal, Refused)),
            ("AWS.SimpleQueueService.MessageNotInflight", "", (Gone, Refused)),
            ("ReceiptHandleIsInvalid", "", (Gone, Refused)),
            ("InvalidParameterValue", expired, (Gone, Refused)),
            ("InvalidParameterValue", settled, (Gone, Refused)),
            ("InvalidParameterValue", "Message must be shorter", (SourceErrorKind::Refused, Refused)),
            ("InvalidParameterValue", "Value x for parameter DelaySeconds", (Fatal, Refused)),
            ("RequestThrottled", "", (Transient, Unsent)),
            ("KmsThrottled", "", (Transient, Unsent)),
            ("OverLimit", "", (Transient, Unsent)),
            ("ExpiredToken", "", (Transient, Unsent)),
            ("InternalFailure", "", (Transient, Unconfirmed)),
        ] {
            assert_eq!(kinds(code, message), expected, "{code} {message}");
        }
    }

    #[test]
    fn an_error_without_an_answer_is_temporary_if_nothing_was_sent() {
        let consequence = |text: &str| unanswered(text.to_owned()).0;
        assert_eq!(consequence("dispatch failure: io error: client error (Connect)"), Consequence::Temporary);
        assert_eq!(consequence("dispatch failure: other: no credentials"), Consequence::Temporary);
        assert_eq!(consequence("dispatch failure: invalid peer certificate: UnknownIssuer"), Consequence::Temporary);
        assert_eq!(consequence("dispatch failure: io error: connection closed"), Consequence::Unknown);
    }
}
