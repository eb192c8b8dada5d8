//! Alerts by HTTP, signed, and sent by a client of the application.
use std::fmt;
use std::future::Future;
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use hmac::{Hmac, Mac};
use idempotent_core::{Alert, AlertError, AlertSender, Clock, SystemClock};
use sha2::Sha256;

/// A request to be sent unchanged: a POST with these headers and this body.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct WebhookRequest {
    /// Names and values: `content-type`, `x-idempotent-timestamp`, `x-idempotent-signature`.
    pub headers: [(&'static str, String); 3],
    /// A JSON object with the fields of an [`Alert`]; absent ones are `null`.
    pub body: String,
}

type Send = dyn Fn(WebhookRequest) -> BoxFuture<'static, Result<(), String>> + std::marker::Send + Sync;

/// A sender that posts alerts to a URL, by the application's HTTP client: this crate brings none.
///
/// The signature is `sha256=` and the HMAC-SHA256, by the secret, of the timestamp (seconds since 1970), a dot and the body,
/// in hexadecimal digits. A receiver computes the signature from the same parts, compares in constant time, and refuses a
/// timestamp that is minutes old. Each try has a timestamp of its own.
///
/// The body has no idempotency key, message id or payload, unless [`with_details`](Self::with_details) is set.
///
/// ```
/// use idempotent_alert::{AlertWebhook, WebhookRequest};
///
/// let webhook = AlertWebhook::new(b"a secret of 32 bytes or more ....", |request: WebhookRequest| async move {
///     // client.post("https://ops.example/alerts").headers(request.headers).body(request.body).send()
///     let _ = request;
///     Ok::<_, std::io::Error>(())
/// });
/// assert!(!format!("{webhook:?}").contains("secret"));
/// ```
pub struct AlertWebhook {
    secret: Box<[u8]>,
    send: Arc<Send>,
    clock: Arc<dyn Clock>,
    details: bool,
}

impl AlertWebhook {
    /// Returns a sender that signs with this secret, and sends with this function. Use a secret of at least 32 random bytes.
    /// The function's error goes to the log: its text must contain no secret, such as a token in a URL.
    pub fn new<F, E>(
        secret: impl AsRef<[u8]>,
        send: impl Fn(WebhookRequest) -> F + std::marker::Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Result<(), E>> + std::marker::Send + 'static,
        E: fmt::Display,
    {
        let send = move |request| {
            let sending = send(request);
            async move { sending.await.map_err(|error| error.to_string()) }.boxed()
        };
        let clock = Arc::new(SystemClock::new());
        Self { secret: secret.as_ref().into(), send: Arc::new(send), clock, details: false }
    }

    /// Sets the clock of the timestamp.
    ///
    /// # Default
    /// [`SystemClock`]
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Includes [`Alert::detail`], which may contain data of the application.
    ///
    /// # Default
    /// Left out
    #[must_use]
    pub fn with_details(mut self) -> Self {
        self.details = true;
        self
    }

    /// Returns the request for an alert.
    #[must_use]
    pub fn request(&self, alert: &Alert) -> WebhookRequest {
        let given_up = alert.given_up.map(|message| {
            serde_json::json!({ "seq": message.seq, "sends": message.sends, "holds_back": message.holds_back })
        });
        let body = serde_json::json!({
            "kind": alert.kind.name(), "scope": alert.scope, "source": alert.source, "cause": alert.cause,
            "remedy": alert.kind.remedy(), "count": alert.count, "first_at_us": alert.first_at.0,
            "last_at_us": alert.last_at.0, "given_up": given_up,
            "detail": alert.detail().filter(|_| self.details),
        });
        let (body, timestamp) = (body.to_string(), (self.clock.wall().0 / 1_000_000).to_string());
        let signature = sign(&self.secret, &timestamp, &body);
        let headers = [
            ("content-type", "application/json".to_owned()),
            ("x-idempotent-timestamp", timestamp),
            ("x-idempotent-signature", signature),
        ];
        WebhookRequest { headers, body }
    }
}

fn sign(secret: &[u8], timestamp: &str, body: &str) -> String {
    // A key of any length will do: it is hashed where it is too long.
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(secret) else { return String::new() };
    mac.update(timestamp.as_bytes());
    mac.update(b".");
    mac.update(body.as_bytes());
    let digits: String = mac.finalize().into_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256={digits}")
}

#[async_trait]
impl AlertSender for AlertWebhook {
    async fn send(&self, alert: &Alert) -> Result<(), AlertError> {
        (self.send)(self.request(alert)).await.map_err(AlertError::new)
    }
}

/// Shows the sender without its secret.
impl fmt::Debug for AlertWebhook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AlertWebhook").field("details", &self.details).finish_non_exhaustive()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use idempotent_core::{AlertKind, GivenUp, Timestamp};

    use super::*;

    /// Expected value: `printf '1700000000.{"a":1}' | openssl dgst -sha256 -hmac key`.
    const KNOWN: &str = "sha256=a438e398bfafc57e4396bb7fc2304422f0f768e965d073ca313cb52e22e6ad03";

    #[test]
    fn a_signature_is_what_other_programs_compute() {
        assert_eq!(sign(b"key", "1700000000", r#"{"a":1}"#), KNOWN);
        assert_ne!(sign(b"kez", "1700000000", r#"{"a":1}"#), KNOWN);
        assert_ne!(sign(b"key", "1700000001", r#"{"a":1}"#), KNOWN);
    }

    fn alert() -> Alert {
        Alert::new(AlertKind::MessageGivenUp, "outbox", Timestamp(5))
            .source("orders")
            .given_up(GivenUp::new(7, 16, true))
            .with_detail("said \"no\"")
    }

    #[tokio::test]
    async fn a_request_is_signed_and_leaves_the_detail_out() {
        let (sent, mut taken) = tokio::sync::mpsc::unbounded_channel();
        let webhook = AlertWebhook::new("key", move |request: WebhookRequest| {
            let _ = sent.send(request);
            async { Err("503") }
        });
        assert_eq!(webhook.send(&alert()).await, Err(AlertError::new("503")));
        let request = taken.try_recv().unwrap();
        let [kind, (_, timestamp), (_, signature)] = &request.headers;
        assert_eq!(kind.1, "application/json");
        assert_eq!(*signature, sign(b"key", timestamp, &request.body));
        let body: serde_json::Value = serde_json::from_str(&request.body).unwrap();
        assert_eq!((&body["kind"], &body["source"]), (&"message_given_up".into(), &"orders".into()));
        assert_eq!((&body["given_up"]["seq"], &body["given_up"]["holds_back"]), (&7.into(), &true.into()));
        assert_eq!((&body["detail"], &body["count"]), (&serde_json::Value::Null, &1.into()));
        assert!(taken.try_recv().is_err(), "once");
    }

    #[test]
    fn a_detail_is_included_on_request() {
        let webhook = AlertWebhook::new("key", |_| async { Ok::<_, String>(()) }).with_details();
        let body: serde_json::Value = serde_json::from_str(&webhook.request(&alert()).body).unwrap();
        assert_eq!(body["detail"], "said \"no\"");
    }
}
