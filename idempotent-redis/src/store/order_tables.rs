//! The order tables of streams: one value each, under a key of its own. They end by themselves.
use std::time::Duration;

use async_trait::async_trait;
use idempotent_core::{Key, Lined, Micros, Order, StoreError, StoreErrorKind};

use crate::RedisStore;
use crate::batching::call::{Call, Said};
use crate::store::BUDGET;

#[async_trait]
impl Order for RedisStore {
    async fn line(&self, stream: &Key) -> Result<Lined, StoreError> {
        let said = self.0.topology.ask(&Call::line(stream), BUDGET).await?;
        let line = match &said.said {
            Said::Plain => None,
            Said::Text(text) if text.first() == Some(&b'R') => Some(text[1..].into()),
            _ => return Err(odd()),
        };
        Ok(Lined { line, now: Micros(said.now) })
    }

    async fn redraw(&self, stream: &Key, seen: Option<&[u8]>, next: &[u8], keep: Duration) -> Result<bool, StoreError> {
        let said = self.0.topology.ask(&Call::redraw(stream, seen, next, keep), BUDGET).await?;
        match &said.said {
            Said::Plain => Ok(true),
            Said::Text(text) if text[..] == *b"N" => Ok(false),
            _ => Err(odd()),
        }
    }
}

fn odd() -> StoreError {
    StoreError::new(StoreErrorKind::Corrupt).because("a script of ours answered what it never does: is it another's?")
}
