//! Senders of [`Alerts`](idempotent_core::Alerts) of [`idempotent`](https://docs.rs/idempotent-rs): signed webhooks, and e-mail by
//! the feature `email`.
//!
//! ```
//! use idempotent_alert::{AlertWebhook, WebhookRequest};
//! use idempotent_core::Alerts;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let webhook = AlertWebhook::new(b"a secret of 32 bytes or more ....", |request: WebhookRequest| async move {
//!     // client.post("https://ops.example/alerts").headers(request.headers).body(request.body).send()
//!     let _ = request;
//!     Ok::<_, std::io::Error>(())
//! });
//! let alerts = Alerts::builder().sender(webhook).start()?;
//! # drop(alerts);
//! # Ok(())
//! # }
//! ```
#![cfg_attr(docsrs, feature(doc_cfg))]
#[cfg(feature = "email")]
mod email;
mod webhook;

#[cfg(feature = "email")]
pub use self::email::{AlertEmail, EmailSetupError};
pub use self::webhook::{AlertWebhook, WebhookRequest};
