//! The order tables of streams. Each table is one value with a key of its own, and expires by itself.
use std::time::Duration;

use async_trait::async_trait;
use idempotent_core::{Key, OrderStore, StoreError, StoreErrorKind, StoredOrderTable, Timestamp};

use crate::RedisStore;
use crate::batching::call::ScriptCall;
use crate::batching::call::reply::ReplyBody;
use crate::store::BUDGET;

#[async_trait]
impl OrderStore for RedisStore {
    async fn load(&self, stream: &Key) -> Result<StoredOrderTable, StoreError> {
        let reply = self.0.call(&ScriptCall::line(stream), BUDGET).await?;
        let line = match &reply.body {
            ReplyBody::Empty => None,
            ReplyBody::Tagged(text) if text.first() == Some(&b'R') => Some(text[1..].into()),
            _ => return Err(unexpected_reply()),
        };
        Ok(StoredOrderTable { table: line, now: Timestamp(reply.now) })
    }

    async fn compare_and_swap(
        &self,
        stream: &Key,
        seen: Option<&[u8]>,
        next: &[u8],
        keep: Duration,
    ) -> Result<bool, StoreError> {
        let reply = self.0.call(&ScriptCall::compare_and_swap(stream, seen, next, keep), BUDGET).await?;
        match &reply.body {
            ReplyBody::Empty => Ok(true),
            ReplyBody::Tagged(text) if text[..] == *b"N" => Ok(false),
            _ => Err(unexpected_reply()),
        }
    }
}

fn unexpected_reply() -> StoreError {
    StoreError::new(StoreErrorKind::Corrupt).because("unexpected script reply; is a proxy rewriting responses?")
}
