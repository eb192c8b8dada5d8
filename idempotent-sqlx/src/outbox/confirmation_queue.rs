//! Outcomes of messages that wait to be written.
use std::sync::{Arc, Mutex};

use idempotent_mq::{DeliveryResult, LoggedDelivery};
use tokio::sync::{Mutex as Turn, oneshot};

use super::OutboxError;
use super::nonce::Nonce;

#[derive(Debug, Default)]
pub(super) struct Ends {
    pub(super) waiting: Mutex<Vec<End>>,
    pub(super) turn: Turn<()>,
}

#[derive(Debug)]
pub(super) struct End {
    pub(super) receipt: LoggedDelivery,
    pub(super) nonce: Nonce,
    pub(super) how: DeliveryResult,
    pub(super) told: oneshot::Sender<Told>,
}

pub(super) type Told = Result<(), Arc<OutboxError>>;
