//! The servers of a delay queue, and the script calls to them.
use std::sync::Arc;
use std::time::Duration;

use idempotent_core::StoreError;
use redis::{Cmd, Pipeline, Value};

use super::layout::SlotKeys;
use super::received::DeliveryReceipt;
use super::scripts::{DelayScript, DelayScripts};
use crate::batching::batcher::CallBatcher;
use crate::connection::notifications::NotificationHub;
use crate::connection::refused;
use crate::failure::{CallFailure, FailureKind};
use crate::topology::{RoutedCall, Topology};

/// The servers and scripts that all topics of a connection share.
#[derive(Debug)]
pub(crate) struct QueueServers {
    pub(crate) topology: Topology,
    pub(crate) hub: Arc<NotificationHub>,
    pub(crate) scripts: DelayScripts,
    pub(crate) namespace: String,
}

/// Retry budget for transient failures of calls that were not applied: a failover, a slot that moves.
const BUDGET: Duration = Duration::from_secs(2);

impl QueueServers {
    /// Calls a script.
    ///
    /// # Errors
    /// The server's error, or an ambiguous error if there was no reply.
    ///
    /// # Cancellation
    /// The call may or may not be applied.
    pub(crate) async fn call(
        &self,
        which: DelayScript,
        keys: &SlotKeys,
        args: &ScriptArgs,
    ) -> Result<Value, StoreError> {
        self.topology.call(&SlotCall { scripts: &self.scripts, which, keys, args }, BUDGET).await
    }
}

/// The setting of a server that limits an argument.
pub(crate) const SIZE_LIMIT: &str = "proto-max-bulk-len";

impl QueueServers {
    /// Returns the size limit of an argument, or `None` if the server does not tell it.
    pub(crate) async fn size_limit(&self, keys: &SlotKeys) -> Option<usize> {
        let call = SizeLimitCall(keys);
        let limit = match self.topology.call(&call, BUDGET).await {
            Ok(limit) => limit,
            // The server has ended the first connection.
            Err(_) => self.topology.call(&call, BUDGET).await.ok()?,
        };
        redis::from_redis_value::<(String, String)>(limit).ok()?.1.parse().ok()
    }
}

/// A request for the size limit of the server of a slot.
struct SizeLimitCall<'a>(&'a SlotKeys);

impl RoutedCall for SizeLimitCall<'_> {
    type Reply = Value;

    fn key(&self) -> &str {
        &self.0.0[0]
    }

    async fn send(&self, batcher: &CallBatcher) -> Result<Value, CallFailure> {
        batcher.connection().send(redis::cmd("CONFIG").arg("GET").arg(SIZE_LIMIT)).await
    }

    async fn send_asking(&self, batcher: &CallBatcher) -> Result<Value, CallFailure> {
        self.send(batcher).await
    }
}

/// The arguments of a script, concatenated.
#[derive(Debug, Default)]
pub(crate) struct ScriptArgs {
    bytes: Vec<u8>,
    /// End of each argument in `bytes`.
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

    /// Adds deliveries that remain held: their count, their numbers unless all are first deliveries, and their members.
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

    /// Adds deliveries that end, with the names of their messages.
    pub(crate) fn done(self, receipts: &[&DeliveryReceipt]) -> Self {
        let mut args = self.held(receipts);
        for receipt in receipts {
            // A merged message has no name during delivery: another message may use the name by now.
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
        let mut cmd = Cmd::new();
        self.scripts.add_call(&mut cmd, self.which as usize, in_full);
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
            // Each server has a script cache of its own, which may be flushed at any time. The script is resent in
            // full.
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
