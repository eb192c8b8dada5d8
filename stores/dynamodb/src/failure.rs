//! Requests without success, and their conversion into errors of a store.
use std::error::Error;
use std::future::Future;
use std::time::Duration;

use aws_sdk_dynamodb::config::http::HttpResponse;
use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use idempotent_core::{StoreError, StoreErrorKind};
use tokio::time::timeout;

/// The time limit for an answer, in seconds.
const ANSWER: u64 = 5;

/// The effect of a request on the table.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Effect {
    /// The request only reads: without an answer, it was not applied.
    Read,
    /// The request writes: without an answer, it may have been applied.
    Write,
}

/// A request without success.
#[derive(Debug)]
pub(crate) enum Failure<E> {
    /// No answer within the time limit.
    Silent,
    /// An error of the client, which may be a refusal by DynamoDB.
    Client(Box<SdkError<E, HttpResponse>>),
}

/// Waits for an answer, for at most 5 s.
pub(crate) async fn answered<T, E>(
    request: impl Future<Output = Result<T, SdkError<E, HttpResponse>>>,
) -> Result<T, Failure<E>> {
    match timeout(Duration::from_secs(ANSWER), request).await {
        Ok(answer) => answer.map_err(|error| Failure::Client(Box::new(error))),
        Err(_) => Err(Failure::Silent),
    }
}

impl<E: Error + ProvideErrorMetadata + 'static> Failure<E> {
    /// Returns the refusal by DynamoDB, if there is one.
    pub(crate) fn refusal(&self) -> Option<&E> {
        match self {
            Self::Silent => None,
            Self::Client(error) => error.as_service_error(),
        }
    }

    /// Returns the kind of the error, and a text with the remedy. The text contains no item.
    pub(crate) fn explained(&self, effect: Effect) -> (StoreErrorKind, String) {
        let unknown = match effect {
            Effect::Read => StoreErrorKind::NotApplied,
            Effect::Write => StoreErrorKind::Ambiguous,
        };
        let error = match self {
            Self::Silent => return (unknown, format!("no answer within {ANSWER} s; {ENDPOINT}")),
            Self::Client(error) => &**error,
        };
        match error {
            SdkError::ServiceError(refusal) => {
                let status = refusal.raw().status().as_u16();
                match (status, refusal.err().code()) {
                    (400..=499, Some(code)) => refused(code, refusal.err().message().unwrap_or("without a message")),
                    // An unreadable answer, or one of a server on the way.
                    (_, Some(code)) => (unknown, format!("DynamoDB fails with the status {status} ({code})")),
                    (_, None) => {
                        let remedy = if matches!(status, 401 | 403) { CREDENTIALS } else { OTHER };
                        (unknown, format!("the server fails with the status {status} (without a code); {remedy}"))
                    }
                }
            }
            SdkError::ConstructionFailure(_) => (StoreErrorKind::Schema, format!("{}; {CLIENT}", chain(error))),
            SdkError::DispatchFailure(_) => {
                unsent(chain(error)).unwrap_or_else(|text| (unknown, format!("{text}; {OTHER}")))
            }
            _ => (unknown, format!("{}; {ENDPOINT}", chain(error))),
        }
    }

    /// Returns the error of a store. `doing` describes the request.
    pub(crate) fn store_error(&self, doing: &str, effect: Effect) -> StoreError {
        let (kind, text) = self.explained(effect);
        StoreError::new(kind).because(format!("{doing}: {text}"))
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

/// Interprets the text of an error of the transport: certainly nothing was sent, or the text itself.
fn unsent(text: String) -> Result<(StoreErrorKind, String), String> {
    // The client has no type for these.
    let lower = text.to_ascii_lowercase();
    let is_of_the_client =
        ["no credentials", "credentials provider", "loading credentials", "no identity resolver", "missing region"];
    let remedy = if lower.contains("invalid peer certificate") {
        AUTHORITY
    } else if is_of_the_client.iter().any(|part| lower.contains(part)) {
        CLIENT
    } else if lower.contains("received corrupt message") {
        PLAIN
    } else if lower.contains("(connect)") || lower.contains("connect timeout") {
        ENDPOINT
    } else {
        return Err(text);
    };
    Ok((StoreErrorKind::NotApplied, format!("{text}; {remedy}")))
}

const CLIENT: &str = "set the region and the credentials of the client, such as by `aws_config::load_from_env`";
const ENDPOINT: &str = "check the region and the endpoint of the client, and the network";
const OTHER: &str =
    "check that the endpoint of the client is one of DynamoDB, with `https://` if it requires TLS, and the network";
const PLAIN: &str = "the server does not answer by TLS: use an endpoint with `http://`, or the port for HTTPS";
const AUTHORITY: &str =
    "trust the authority of this certificate, by the variable `SSL_CERT_FILE` or by the `http_client` of the client";
const CREATE: &str =
    "create the table, by `create(true)` on the builder, or check the name, the region and the account";
const CREDENTIALS: &str = "check the credentials and the region of the client, and the clock of this machine";
const ALLOW: &str = "allow the role dynamodb:DescribeTable, dynamodb:DescribeTimeToLive, dynamodb:GetItem and dynamodb:PutItem on the \
                     table, and dynamodb:CreateTable and dynamodb:UpdateTimeToLive if it creates the table";
const KEY: &str = "use a table whose only key is the partition key `id` of type S";
const SIZE: &str = "an item has at most 400 KB: shorten the error texts of the handler";
const RATE: &str = "DynamoDB limits the rate of requests: raise the capacity of the table, or lower the load";

/// Interprets a refusal by its code and message. DynamoDB did not apply the request.
fn refused(code: &str, message: &str) -> (StoreErrorKind, String) {
    use StoreErrorKind::{Denied, NotApplied, Schema};
    let has = |parts: &[&str]| parts.iter().any(|part| message.contains(part));
    let (kind, remedy) = match code {
        "ResourceNotFoundException" => (Schema, CREATE),
        "AccessDenied" | "AccessDeniedException" => (Denied, ALLOW),
        "AuthFailure"
        | "IncompleteSignature"
        | "IncompleteSignatureException"
        | "InvalidClientTokenId"
        | "InvalidSignatureException"
        | "MissingAuthenticationToken"
        | "MissingAuthenticationTokenException"
        | "OptInRequired"
        | "SignatureDoesNotMatch"
        | "UnrecognizedClientException" => (Denied, CREDENTIALS),
        "ExpiredToken" | "ExpiredTokenException" | "RequestExpired" => (NotApplied, CREDENTIALS),
        "LimitExceededException" => {
            (NotApplied, "too many tables are being created or changed in this account; retry later")
        }
        "ProvisionedThroughputExceededException"
        | "RequestLimitExceeded"
        | "Throttling"
        | "ThrottlingException"
        | "TooManyRequestsException" => (NotApplied, RATE),
        "ReplicatedWriteConflictException" | "TransactionConflictException" => {
            (NotApplied, "another request changes the item at this moment; retry")
        }
        "ResourceInUseException" => (NotApplied, "the table is being created or changed; retry"),
        "ValidationException" if has(&["tem size"]) => (NotApplied, SIZE),
        "ValidationException" if has(&["does not match the schema", "Missing the key", "Type mismatch for key"]) => {
            (Schema, KEY)
        }
        _ => (NotApplied, "DynamoDB refuses the request"),
    };
    (kind, format!("{message} ({code}); {remedy}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_an_error_that_shows_whether_a_retry_may_succeed() {
        use StoreErrorKind::{Denied, NotApplied, Schema};
        let too_large = "Item size has exceeded the maximum allowed size";
        for (code, message, expected, remedy) in [
            ("ResourceNotFoundException", "", Schema, "create the table"),
            ("AccessDeniedException", "", Denied, "dynamodb:PutItem"),
            ("UnrecognizedClientException", "", Denied, "the clock of this machine"),
            ("InvalidSignatureException", "", Denied, "check the credentials"),
            ("ExpiredTokenException", "", NotApplied, "check the credentials"),
            ("LimitExceededException", "", NotApplied, "retry later"),
            ("ProvisionedThroughputExceededException", "", NotApplied, "raise the capacity"),
            ("ThrottlingException", "", NotApplied, "raise the capacity"),
            ("RequestLimitExceeded", "", NotApplied, "raise the capacity"),
            ("TransactionConflictException", "", NotApplied, "retry"),
            ("ReplicatedWriteConflictException", "", NotApplied, "retry"),
            ("ResourceInUseException", "", NotApplied, "retry"),
            ("ValidationException", too_large, NotApplied, "at most 400 KB"),
            ("ValidationException", "The provided key element does not match the schema", Schema, "partition key `id`"),
            ("ValidationException", "Unsupported table", NotApplied, "refuses the request"),
            ("AnyOther", "", NotApplied, "refuses the request"),
        ] {
            let (kind, text) = refused(code, message);
            assert!(kind == expected && text.contains(remedy) && text.contains(code), "{code}: {kind:?}: {text}");
        }
    }

    #[test]
    fn an_error_of_the_transport_is_a_refusal_only_if_nothing_was_sent() {
        let is_unsent = |text: &str| unsent(text.to_owned()).is_ok();
        assert!(is_unsent("dispatch failure: io error: client error (Connect)"));
        assert!(is_unsent("dispatch failure: timeout: HTTP connect timeout occurred after 3.1s"));
        assert!(is_unsent("dispatch failure: other: no credentials"));
        assert!(is_unsent("dispatch failure: io error: invalid peer certificate: UnknownIssuer"));
        assert!(is_unsent("dispatch failure: other: failed to select an auth scheme: there was no identity resolver"));
        assert!(is_unsent("dispatch failure: other: Invalid Configuration: Missing Region"));
        assert!(!is_unsent("dispatch failure: io error: connection closed before message completed"));
        assert!(!is_unsent("dispatch failure: timeout: HTTP read timeout occurred after 3.1s"));
    }
}
