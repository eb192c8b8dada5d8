//! Waiting for a run to end, told by the server.
use std::sync::Arc;
use std::time::Duration;

use idempotent_core::{Key, Watch, Watching};

use crate::RedisStore;
use crate::batching::call::{ReplyBody, ScriptCall};
use crate::store::StoreInner;

/// Asked again this often while nothing can be heard, doubling.
const POLL: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));
/// And this often while it can: a word may get lost.
const BACKSTOP: Duration = Duration::from_secs(5);

impl Watch for RedisStore {
    fn watch(&self, key: &Key) -> Watching {
        let registration = self.0.hub.register(key.as_str());
        // Counted from here on, though it is polled later.
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

/// Asks for word, and whether the run has ended already.
async fn poll_until_settled(inner: &Arc<StoreInner>, key: &Key) {
    let mut pause = POLL.0;
    loop {
        let is_listening = match inner.topology.call(&ScriptCall::watch(key), Duration::ZERO).await {
            Ok(answer) if answer.body == ReplyBody::Flag(false) => return,
            Ok(_) => inner.hub.is_listening(),
            Err(_) => false,
        };
        tokio::time::sleep(if is_listening { BACKSTOP } else { pause }).await;
        pause = (pause * 2).min(POLL.1);
    }
}
