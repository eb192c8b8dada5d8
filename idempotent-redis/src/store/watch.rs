//! Waiting for a run to end, told by the server.
use std::sync::Arc;
use std::time::Duration;

use idempotent_core::{Key, Watch, Watching};

use crate::RedisStore;
use crate::batching::call::{Call, Said};
use crate::store::Inner;

/// Asked again this often while nothing can be heard, doubling.
const POLL: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));
/// And this often while it can: a word may get lost.
const BACKSTOP: Duration = Duration::from_secs(5);

impl Watch for RedisStore {
    fn watch(&self, key: &Key) -> Watching {
        let waiting = self.0.hub.wait(key.as_str());
        // Counted from here on, though it is polled later.
        let told = waiting.bell.clone().notified_owned();
        let (inner, key) = (self.0.clone(), key.clone());
        Box::pin(async move {
            let _waiting = waiting;
            tokio::select! {
                () = told => {}
                () = settled(&inner, &key) => {}
            }
        })
    }
}

/// Asks for word, and whether the run has ended already.
async fn settled(inner: &Arc<Inner>, key: &Key) {
    let mut pause = POLL.0;
    loop {
        let heard = match inner.topology.ask(&Call::watch(key), Duration::ZERO).await {
            Ok(answer) if answer.said == Said::Held(false) => return,
            Ok(_) => inner.hub.hears(),
            Err(_) => false,
        };
        tokio::time::sleep(if heard { BACKSTOP } else { pause }).await;
        pause = (pause * 2).min(POLL.1);
    }
}
