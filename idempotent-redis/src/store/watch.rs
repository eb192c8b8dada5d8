//! Waiting for the end of a run, by notifications of the server.
use std::sync::Arc;
use std::time::Duration;

use idempotent_core::{Key, State, StoreError, Watch, Watching};

use crate::RedisStore;
use crate::batching::call::ScriptCall;
use crate::batching::call::reply::ReplyBody;
use crate::store::{StoreInner, replies};

/// First and last poll interval without notifications. The interval doubles with each poll.
const POLL: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));
/// Poll interval with notifications, because a notification may be lost.
const BACKSTOP: Duration = Duration::from_secs(5);

impl Watch for RedisStore {
    fn watch(&self, key: &Key) -> Watching {
        let registration = self.0.hub.register(key.as_str());
        // Registered now, although the future is polled later.
        let notified = registration.notify.clone().notified_owned();
        let (inner, key) = (self.0.clone(), key.clone());
        Box::pin(async move {
            let _waiting = registration;
            tokio::select! {
                () = notified => {}
                () = poll_until_settled(&inner, &key) => {}
            }
        })
    }
}

/// Requests a notification for the key, and returns when the run has ended.
async fn poll_until_settled(inner: &Arc<StoreInner>, key: &Key) {
    let mut pause = POLL.0;
    loop {
        let is_requested = match request(inner, key).await {
            Ok(None) => return,
            Ok(Some(is_requested)) => is_requested && inner.hub.is_listening(),
            Err(_) => false,
        };
        tokio::time::sleep(if is_requested { BACKSTOP } else { pause }).await;
        pause = (pause * 2).min(POLL.1);
    }
}

/// Requests a notification, and returns whether there will be one, or `None` if no run holds the key. A read-only store
/// only reads the record, because a request is a mark in the record.
async fn request(inner: &StoreInner, key: &Key) -> Result<Option<bool>, StoreError> {
    if inner.checks.read_only {
        let seen = replies::seen(inner.call(&ScriptCall::look(key), Duration::ZERO).await?)?;
        let is_held = seen.is_some_and(|(record, _)| matches!(record.state, State::Consuming { .. }));
        return Ok(is_held.then_some(false));
    }
    let answer = inner.call(&ScriptCall::watch(key), Duration::ZERO).await?;
    Ok((answer.body != ReplyBody::Flag(false)).then_some(true))
}
