//! The publisher: sends again, and again, what it does not know to have arrived; and some of what has.
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;

use super::broker::Broker;
use super::copy::Copy;

/// Before it is sent again.
const PAUSE: Duration = Duration::from_millis(50);

pub(super) struct Publisher {
    broker: Arc<dyn Broker>,
    /// Wrong on purpose: whatever is heard is a confirm.
    blind: bool,
    under_way: JoinSet<anyhow::Result<(Arc<Copy>, u64)>>,
    pub(super) ledger: Ledger,
}

/// All that was sent.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    /// The copies by name, and whether the broker has confirmed each.
    pub(super) copies: BTreeMap<String, (Arc<Copy>, bool)>,
    /// The number of resent messages without a confirm.
    pub(super) resent: u64,
}

impl Publisher {
    pub(super) fn new(broker: Arc<dyn Broker>, blind: bool) -> Self {
        Self { broker, blind, under_way: JoinSet::new(), ledger: Ledger::default() }
    }

    /// After this time, until it is confirmed.
    pub(super) fn send(&mut self, copy: Copy, after: Duration) {
        let (broker, blind, copy) = (self.broker.clone(), self.blind, Arc::new(copy));
        self.ledger.copies.insert(copy.name.clone(), (copy.clone(), false));
        self.under_way.spawn(async move {
            tokio::time::sleep(after).await;
            let mut resent = 0;
            while !broker.publish(&copy).await? && !blind {
                resent += 1;
                tokio::time::sleep(PAUSE).await;
            }
            Ok((copy, resent))
        });
    }

    /// The next one that is confirmed; `None` while none is to be.
    ///
    /// # Cancellation
    /// Nothing is lost.
    pub(super) async fn confirmed(&mut self) -> Option<anyhow::Result<Arc<Copy>>> {
        let sent = self.under_way.join_next().await?;
        let (copy, resent) = match sent.map_err(Into::into).flatten() {
            Ok(sent) => sent,
            Err(error) => return Some(Err(error)),
        };
        self.ledger.resent += resent;
        self.ledger.copies.insert(copy.name.clone(), (copy.clone(), true));
        Some(Ok(copy))
    }

    pub(super) fn under_way(&self) -> usize {
        self.under_way.len()
    }
}
