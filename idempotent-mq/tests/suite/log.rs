//! A message log that answers as the test demands, and records its calls.
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use idempotent_mq::{DeliveryResult, LogError, LogErrorKind, LoggedDelivery, MessageLog, SenderState};

#[derive(Debug)]
pub struct Log {
    state: Mutex<SenderState>,
    takes_results: Mutex<bool>,
    received: Mutex<Vec<LoggedDelivery>>,
    concluded: Mutex<Vec<(String, DeliveryResult)>>,
}

impl Log {
    /// A log that answers with this state for each message.
    pub fn answering(state: SenderState) -> Arc<Self> {
        let (received, concluded) = (Mutex::default(), Mutex::default());
        Arc::new(Self { state: Mutex::new(state), takes_results: Mutex::new(true), received, concluded })
    }

    pub fn answer(&self, state: SenderState) {
        *self.state.lock().unwrap() = state;
    }

    pub fn take_results(&self, takes: bool) {
        *self.takes_results.lock().unwrap() = takes;
    }

    /// The consumers that have recorded deliveries.
    pub fn consumers(&self) -> Vec<Option<Arc<str>>> {
        self.received.lock().unwrap().iter().map(|delivery| delivery.consumer.clone()).collect()
    }

    pub fn concluded(&self) -> Vec<(String, DeliveryResult)> {
        self.concluded.lock().unwrap().clone()
    }
}

#[async_trait]
impl MessageLog for Log {
    async fn received(&self, receipts: &[LoggedDelivery]) -> Result<Vec<SenderState>, LogError> {
        self.received.lock().unwrap().extend_from_slice(receipts);
        Ok(vec![*self.state.lock().unwrap(); receipts.len()])
    }

    async fn concluded(&self, receipt: &LoggedDelivery, how: DeliveryResult) -> Result<(), LogError> {
        if !*self.takes_results.lock().unwrap() {
            return Err(LogError::new(LogErrorKind::Transient, "down, as the test wants it"));
        }
        self.concluded.lock().unwrap().push((receipt.id.clone(), how));
        Ok(())
    }
}
