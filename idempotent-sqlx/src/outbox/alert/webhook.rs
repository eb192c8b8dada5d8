//! Alarms by HTTP, signed; sent by a client of yours.
use std::fmt;
use std::future::Future;
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use hmac::{Hmac, Mac};
use idempotent_core::{Clock, SystemClock};
use sha2::Sha256;

use super::{Alarm, Alert};

/// A request to be sent as it is: a POST with these headers and this body.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct WebhookRequest {
    /// Names and values: `content-type`, `x-idempotent-timestamp`, `x-idempotent-signature`.
    pub headers: [(&'static str, String); 3],
    /// A JSON object, with the fields of an [`Alarm`].
    pub body: String,
}

type Send = dyn Fn(WebhookRequest) -> BoxFuture<'static, Result<(), String>> + std::marker::Send + Sync;

/// Posts alarms to a URL, by the HTTP client that you have: this crate brings none.
///
/// The signature is `sha256=` and the HMAC-SHA256, by the secret, of the timestamp (seconds since 1970), a dot and the body,
/// in hexadecimal digits. A receiver computes it anew, compares without leaking time, and refuses a timestamp that is
/// minutes old.
///
/// ```
/// use idempotent_sqlx::{Alert, Webhook, WebhookRequest};
///
/// let hook = Webhook::new(b"a secret of 32 bytes or more ....", |request: WebhookRequest| async move {
///     // client.post("https://ops.example/alarms").headers(request.headers).body(request.body).send()
///     let _ = request;
///     Ok::<_, std::io::Error>(())
/// });
/// assert!(!format!("{hook:?}").contains("secret"));
/// ```
pub struct Webhook {
    secret: Box<[u8]>,
    send: Arc<Send>,
    clock: Arc<dyn Clock>,
}

impl Webhook {
    /// Signs by this secret, and sends so. An error is logged, and tried no more: the alarm is in the log, too.
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
        Self { secret: secret.as_ref().into(), send: Arc::new(send), clock: Arc::new(SystemClock::new()) }
    }

    /// What the timestamp is taken from.
    ///
    /// # Default
    /// [`SystemClock`]
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// The request for an alarm, to be sent in a way of your own.
    #[must_use]
    pub fn request(&self, alarm: &Alarm) -> WebhookRequest {
        let Alarm { outbox, seq, topic, sends, last_error, holds_back } = alarm;
        let body = serde_json::json!({
            "outbox": outbox, "seq": seq, "topic": topic, "sends": sends, "last_error": last_error,
            "holds_back": holds_back,
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
impl Alert for Webhook {
    async fn raise(&self, alarm: &Alarm) {
        super::LogAlert.raise(alarm).await;
        if let Err(error) = (self.send)(self.request(alarm)).await {
            tracing::warn!(target: "idempotent", outbox = alarm.outbox, seq = alarm.seq, error,
                "an alarm was not taken by its webhook");
        }
    }
}

/// Without the secret.
impl fmt::Debug for Webhook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Webhook").finish_non_exhaustive()
    }
}

#[cfg(test)]
#[allow(clippy::expect_used)]
mod tests {
    use super::*;

    /// By `printf '1700000000.{"a":1}' | openssl dgst -sha256 -hmac key`.
    const KNOWN: &str = "sha256=a438e398bfafc57e4396bb7fc2304422f0f768e965d073ca313cb52e22e6ad03";

    #[test]
    fn a_signature_is_what_other_programs_compute() {
        assert_eq!(sign(b"key", "1700000000", r#"{"a":1}"#), KNOWN);
        assert_ne!(sign(b"kez", "1700000000", r#"{"a":1}"#), KNOWN);
        assert_ne!(sign(b"key", "1700000001", r#"{"a":1}"#), KNOWN);
    }

    #[tokio::test]
    async fn what_is_sent_is_signed_and_a_failure_of_the_far_side_is_none_of_the_relay() {
        let (sent, mut taken) = tokio::sync::mpsc::unbounded_channel();
        let hook = Webhook::new("key", move |request: WebhookRequest| {
            let _ = sent.send(request);
            async { Err("503") }
        });
        let alarm = Alarm {
            outbox: "outbox".into(),
            seq: 7,
            topic: "orders".into(),
            sends: 16,
            last_error: Some("said \"no\"".into()),
            holds_back: true,
        };
        hook.raise(&alarm).await;
        let request = taken.try_recv().expect("sent");
        let [kind, (_, timestamp), (_, signature)] = &request.headers;
        assert_eq!(kind.1, "application/json");
        assert_eq!(*signature, sign(b"key", timestamp, &request.body));
        let body: serde_json::Value = serde_json::from_str(&request.body).expect("JSON");
        assert_eq!(
            (&body["seq"], &body["last_error"], &body["holds_back"]),
            (&7.into(), &"said \"no\"".into(), &true.into())
        );
        assert!(taken.try_recv().is_err(), "once");
    }
}
