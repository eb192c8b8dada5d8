//! The servers of a delay queue, and how a script is asked of them.
use std::sync::Arc;
use std::time::Duration;

use idempotent_core::StoreError;
use idempotent_mq::{DelayError, DelayErrorKind, SourceError, SourceErrorKind};
use redis::{Cmd, Pipeline, Value};

use super::layout::SlotKeys;
use super::received::DeliveryReceipt;
use super::scripts::{DelayScript, DelayScripts};
use crate::batching::batcher::CallBatcher;
use crate::connection::notifications::NotificationHub;
use crate::connection::refused;
use crate::failure::{CallFailure, FailureKind};
use crate::topology::{RoutedCall, Topology};
use idempotent_core::StoreErrorKind;

/// What all topics of one connection share.
#[derive(Debug)]
pub(crate) struct QueueServers {
    pub(crate) topology: Topology,
    pub(crate) hub: Arc<NotificationHub>,
    pub(crate) scripts: DelayScripts,
    pub(crate) namespace: String,
}

/// For what is surely not applied and may pass in a moment: a failover, a slot that moves.
const BUDGET: Duration = Duration::from_secs(2);

impl QueueServers {
    /// # Errors
    /// What the servers said, or that they did not answer.
    ///
    /// # Cancellation
    /// It may have been applied or not.
    pub(crate) async fn call(
        &self,
        which: DelayScript,
        keys: &SlotKeys,
        args: &ScriptArgs,
    ) -> Result<Value, StoreError> {
        self.topology.call(&SlotCall { scripts: &self.scripts, which, keys, args }, BUDGET).await
    }
}

/// Arguments of a script, one behind the other.
#[derive(Debug, Default)]
pub(crate) struct ScriptArgs {
    bytes: Vec<u8>,
    /// Where each ends.
    ends: Vec<usize>,
}

impl ScriptArgs {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn text(mut self, text: impl AsRef<[u8]>) -> Self {
        self.push(text);
        self
    }

    pub(crate) fn number(mut self, number: impl Into<u64>) -> Self {
        self.push(number.into().to_string());
        self
    }

    /// Deliveries, as what is to be kept: how many, their numbers unless each is a first delivery, the members.
    pub(crate) fn held(mut self, receipts: &[&DeliveryReceipt]) -> Self {
        self.push(receipts.len().to_string());
        let mut numbers = String::new();
        if receipts.iter().any(|receipt| receipt.number != 1) {
            numbers.extend(receipts.iter().map(|receipt| format!("{} ", receipt.number)));
        }
        self.push(numbers);
        for receipt in receipts {
            self.push(&receipt.member);
        }
        self
    }

    /// Deliveries, as what is to be ended for good: with the names that they go by still.
    pub(crate) fn done(self, receipts: &[&DeliveryReceipt]) -> Self {
        let mut args = self.held(receipts);
        for receipt in receipts {
            // What is merged goes by no name since it was taken: another one may have it by now.
            args.push(if receipt.name.starts_with('k') { &receipt.name } else { "" });
        }
        args
    }

    fn push(&mut self, text: impl AsRef<[u8]>) {
        self.bytes.extend(text.as_ref());
        self.ends.push(self.bytes.len());
    }

    fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let mut start = 0;
        self.ends.iter().map(move |end| &self.bytes[std::mem::replace(&mut start, *end)..*end])
    }
}

struct SlotCall<'a> {
    scripts: &'a DelayScripts,
    which: DelayScript,
    keys: &'a SlotKeys,
    args: &'a ScriptArgs,
}

impl SlotCall<'_> {
    fn command(&self, in_full: bool) -> Cmd {
        let mut cmd = self.scripts.command(self.which, in_full);
        cmd.arg(self.keys.0.len());
        for key in &self.keys.0 {
            cmd.arg(key);
        }
        for arg in self.args.iter() {
            cmd.arg(arg);
        }
        cmd
    }
}

impl RoutedCall for SlotCall<'_> {
    type Reply = Value;

    fn key(&self) -> &str {
        &self.keys.0[0]
    }

    async fn send(&self, batcher: &CallBatcher) -> Result<Value, CallFailure> {
        match batcher.connection().send(&self.command(false)).await {
            // The cache of scripts is each server's own, and may be emptied at any time: in full, to the same one.
            Err(failure) if failure.kind == FailureKind::NoScript => {
                batcher.connection().send(&self.command(true)).await
            }
            reply => reply,
        }
    }

    async fn send_asking(&self, batcher: &CallBatcher) -> Result<Value, CallFailure> {
        let mut pipeline = Pipeline::with_capacity(2);
        pipeline.add_command(Cmd::new().arg("ASKING").to_owned()).add_command(self.command(true));
        let reply = batcher.connection().send_pipeline(&pipeline).await?.pop();
        refused(reply.ok_or_else(|| CallFailure::ambiguous("unexpected empty reply; is a proxy rewriting responses?"))?)
    }
}

/// What a producer may conclude. Those that went together share the error.
pub(crate) fn delay_error(doing: &str, error: impl Into<Arc<StoreError>>) -> DelayError {
    let error = error.into();
    let kind = match error.kind() {
        StoreErrorKind::NotApplied => DelayErrorKind::NotApplied,
        StoreErrorKind::Ambiguous => DelayErrorKind::Ambiguous,
        _ => DelayErrorKind::Refused,
    };
    DelayError::new(kind, format!("{doing}: {error}")).with_cause(error)
}

/// What a consumer may conclude.
pub(crate) fn source_error(doing: &str, error: StoreError) -> SourceError {
    let kind = match error.kind() {
        StoreErrorKind::NotApplied | StoreErrorKind::Ambiguous => SourceErrorKind::Transient,
        _ => SourceErrorKind::Fatal,
    };
    SourceError::new(kind, format!("{doing}: {error}")).with_cause(error)
}

/// Not in the form that the script gives.
pub(crate) fn unexpected_reply(doing: &str) -> StoreError {
    let text = format!("{doing}: unexpected script reply; is a proxy rewriting responses?");
    StoreError::new(StoreErrorKind::Ambiguous).because(text)
}
