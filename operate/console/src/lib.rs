//! A web console for operators of [`idempotent-rs`](https://docs.rs/idempotent-rs): keys in flight, dead letters, outboxes and
//! health, as an axum router.
//!
//! ```
//! # fn user_of(_: &axum::http::request::Parts) -> Option<idempotent_console::User> { None }
//! # async fn example() -> Result<axum::Router, Box<dyn std::error::Error>> {
//! use idempotent_console::{Access, Console};
//!
//! let store = idempotent::connect("sqlite:orders.db").create(true).await?;
//! let console = Console::builder()
//!     .store("orders", store)
//!     .access(Access::from_request(|request| user_of(request))) // the session of your service
//!     .audit_file("audit.jsonl")?
//!     .build()?;
//! Ok(axum::Router::new().merge(console.mount("/admin/idempotent")))
//! # }
//! ```
//!
//! # Changes
//!
//! Each change has two steps. The first page shows the exact entries with the fencing numbers that the user saw, and asks for a
//! reason. The second step changes these entries only: a key that has changed meanwhile is reported and left alone. A second
//! click starts nothing. The [audit log](ConsoleBuilder::audit_file) has an intent before each change, and the result after the change.
//!
//! # Security
//!
//! - A console without authentication cannot be built. [`Role`] lists the permissions.
//! - Forms need a token of the session, a matching `Origin`, and no cross-site `Sec-Fetch-Site`.
//! - The pages load only own files, and a content security policy with Trusted Types enforces that.
//! - Bodies, results and header values are never shown.
//! - Failed logins are logged without their token. After 10 per minute and address, they are refused as too many. A valid token
//!   always passes.
//!
//! # Limits
//!
//! Sessions, plans and tasks are in the memory of the process. With several replicas, a load balancer must send a user to one
//! replica. After a restart users log in again, and the audit log shows what was done.
#![cfg_attr(docsrs, feature(doc_cfg))]
mod access;
mod assets;
mod builder;
mod error;
mod form;
mod gate;
mod overview;
mod pages;
mod plan;
mod random;
mod router;
mod state;
mod targets;

pub use idempotent_operate::{AuditFile, AuditSink, DelayAccess, TracingAudit};
#[cfg(feature = "__outbox")]
#[cfg_attr(docsrs, doc(cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))))]
pub use idempotent_operate::{OutboxAccess, PooledOutbox};

pub use self::access::{Access, Role, TokenError, TokenList, User};
pub use self::builder::{Console, ConsoleBuilder, SetupError};
