//! The outcomes of deliveries that wait to be written together.
use std::sync::{Arc, Mutex};

use idempotent_mq::{DeliveryResult, LoggedDelivery};
use tokio::sync::{Mutex as AsyncMutex, oneshot};

use super::OutboxError;
use super::nonce::Nonce;

#[derive(Debug, Default)]
pub(super) struct ConfirmationQueue {
    pub(super) waiting: Mutex<Vec<PendingConfirmation>>,
    pub(super) writing: AsyncMutex<()>,
}

#[derive(Debug)]
pub(super) struct PendingConfirmation {
    pub(super) receipt: LoggedDelivery,
    pub(super) nonce: Nonce,
    pub(super) how: DeliveryResult,
    pub(super) told: oneshot::Sender<WriteResult>,
}

pub(super) type WriteResult = Result<(), Arc<OutboxError>>;
