//! The expansion is silent under every lint of clippy: what is allowed here is about the code as written.
#![deny(warnings, clippy::pedantic, clippy::nursery, clippy::restriction)]
#![forbid(unreachable_code, unused_qualifications)]
#![allow(
    clippy::allow_attributes,
    clippy::allow_attributes_without_reason,
    clippy::arbitrary_source_item_ordering,
    clippy::blanket_clippy_restriction_lints,
    clippy::missing_assert_message,
    clippy::missing_docs_in_private_items,
    clippy::pub_with_shorthand,
    clippy::redundant_pub_crate,
    clippy::single_call_fn,
    clippy::trivially_copy_pass_by_ref,
    clippy::unwrap_used
)]
use core::fmt::Display;

use axum::response::IntoResponse;
use idempotent::http::Problem;
use idempotent::{Executor, Http, MemoryStore, Rejection, idempotent};

#[allow(clippy::needless_return)]
const fn is_zero(id: &u32) -> bool {
    return *id == 0;
}

#[allow(clippy::needless_return)]
const fn is_permanent(rejection: &Rejection) -> bool {
    return matches!(*rejection, Rejection::Mismatch);
}

struct Service {
    idem: Executor,
}

impl Service {
    #[idempotent(
        key = (id, "part"),
        scope = "by_ref",
        tenant = &id,
        fingerprint = &id,
        with = self.idem,
        max_retries = 3,
        retain = "7d",
        failed_if = is_zero,
        permanent = is_permanent,
        reject = Err,
    )]
    async fn by_ref(&self, id: u32) -> Result<u32, Rejection> {
        return Ok(id);
    }

    #[idempotent(key = text.to_string(), with = &self.idem, scope = "by value")]
    async fn by_value(self, text: impl Display + Send + Sync) -> Result<Vec<Option<Result<u8, String>>>, Rejection> {
        if text.to_string().is_empty() {
            return Ok(Vec::new());
        }
        return Ok(vec![None]);
    }
}

#[idempotent(scene = rest, key = id, with = executor, detach, release_on_cancel)]
async fn detached(executor: Executor, id: String) -> Result<(), Rejection> {
    drop(executor);
    drop(id);
    return Ok(());
}

#[idempotent(scene = rest, key = id, with = executor, tenant = (), fingerprint = (), reply = Http)]
async fn answered(executor: Executor, id: String) -> Result<impl IntoResponse + Send + use<>, Problem> {
    drop(executor);
    return Ok(id);
}

#[tokio::main(flavor = "current_thread")]
pub(crate) async fn main() {
    let service = Service { idem: Executor::new(MemoryStore::default()) };
    assert_eq!(service.by_ref(1).await.unwrap(), 1);
    detached(service.idem.clone(), "a".to_owned()).await.unwrap();
    assert_eq!(answered(service.idem.clone(), "a".to_owned()).await.status(), 200);
    assert_eq!(service.by_value("a").await.unwrap(), [None]);
}
