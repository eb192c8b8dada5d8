//! Keeping held deliveries alive, whether they run or wait.
use std::sync::Arc;
use std::time::Duration;

use tracing::warn;

use super::shared::{Held, Shared};
use crate::time::within;

/// Every `interval`, all that is held: each delivery is kept alive within one interval of being handed over. Never ends.
pub(super) async fn keep<Tag: Send + Sync + 'static>(shared: Arc<Shared<Tag>>, interval: Duration) {
    let mut next = shared.clock().now();
    loop {
        next = shared.clock().now().max(next + interval);
        shared.clock().sleep_until(next).await;
        let held: Vec<Arc<Held<Tag>>> = shared.held().values().filter(|held| !held.is_revoked()).cloned().collect();
        if held.is_empty() {
            continue;
        }
        let tags: Vec<&Tag> = held.iter().map(|held| &held.tag).collect();
        let error = match within(shared.clock(), interval, shared.settler.keep_alive(&tags)).await {
            Some(Ok(())) => continue,
            Some(Err(error)) => error.to_string(),
            None => "no answer within one interval".to_owned(),
        };
        shared.counters.source_errors();
        warn!(target: "idempotent", group = &*shared.desk.group, held = tags.len(), error, "keeping alive failed");
    }
}
