//! Extension of the visibility timeouts of unsettled deliveries.
use std::sync::Arc;
use std::time::Duration;

use tracing::warn;

use super::state::{ConsumerState, HeldDelivery};
use crate::time::within;

/// Extends the visibility timeouts of all unsettled deliveries after each interval. Never ends.
pub(super) async fn keep_alive<Tag: Send + Sync + 'static>(shared: Arc<ConsumerState<Tag>>, interval: Duration) {
    let mut next = shared.clock().now();
    loop {
        next = shared.clock().now().max(next + interval);
        shared.clock().sleep_until(next).await;
        let held: Vec<Arc<HeldDelivery<Tag>>> =
            shared.held().iter().map(|(_, held)| held).filter(|held| !held.is_revoked()).cloned().collect();
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
        warn!(target: "idempotent", group = &*shared.context.group, held = tags.len(), error, "consumer: extending visibility timeouts failed");
    }
}
