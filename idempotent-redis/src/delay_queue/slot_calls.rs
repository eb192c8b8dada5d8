//! Script calls to the slots of a topic.
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::future::{join, join_all};
use idempotent_core::__private::start_of;
use idempotent_core::StoreError;
use idempotent_mq::DelayError;
use redis::Value;

use super::layout::SlotKeys;
use super::queue::{DelayQueue, SettleResult};
use super::received::{DelayDelivery, DeliveryReceipt, RawDelivery};
use super::replies::{ReplyItems, bytes, delay_error, unexpected_reply};
use super::scripts::DelayScript;
use super::servers::ScriptArgs;

/// The result of polling a slot.
pub(crate) struct SlotBatch {
    pub(crate) taken: Vec<DelayDelivery>,
    /// Results of the commits in the same call.
    pub(crate) committed: Result<Vec<SettleResult>, StoreError>,
    /// Time until the next poll, or `None` if only a new message makes one necessary.
    pub(crate) again: Option<Duration>,
}

/// Maximum length of a stored reason, in bytes.
const LONGEST_REASON: usize = 256;

impl DelayQueue {
    pub(crate) fn slots(&self) -> impl Iterator<Item = u16> + use<> {
        0..self.0.settings.slots
    }

    /// Takes due messages from a slot, after committing up to [`MAX_BATCH`] deliveries of that slot. With `waits`, the
    /// server notifies this process of messages that become due earlier.
    pub(crate) async fn take_from(
        &self,
        slot: u16,
        room: usize,
        waits: bool,
        done: &[&DeliveryReceipt],
    ) -> Result<SlotBatch, StoreError> {
        let (keys, room) = (self.keys(slot), room.clamp(1, MAX_BATCH));
        let args = ScriptArgs::new().number(room as u64).number(micros(self.0.settings.visibility));
        let args = args.number(self.0.settings.max_retries).number(u64::from(waits)).done(done);
        let reply = self.0.servers.call(DelayScript::Take, keys, &args).await?;
        let answer = parse_take(reply, slot, keys).ok_or_else(|| unexpected_reply("taking"))?;
        let committed = parse_closings(&answer.committed, done.len()).ok_or_else(|| unexpected_reply("taking"))?;
        if answer.died > 0 {
            let (topic, died) = (&*self.0.topic.name, answer.died);
            tracing::warn!(target: "idempotent", topic, died, "dead-lettered messages that were not settled in time");
        }
        // There may be more messages, and no notification was requested.
        let again = if answer.handed.len() >= room { Some(Duration::ZERO) } else { answer.again };
        let mut taken = Vec::with_capacity(answer.handed.len());
        for handed in answer.handed {
            match handed.decode() {
                Ok(message) => taken.push(message),
                Err(unexpected_reply) => self.bury_undecodable(&unexpected_reply).await?,
            }
        }
        Ok(SlotBatch { taken, committed: Ok(committed), again })
    }

    /// Commits deliveries and takes due messages from a slot, with one call for the deliveries of that slot. The other
    /// commits run concurrently.
    pub(crate) async fn commit_and_take_from(
        &self,
        slot: u16,
        room: usize,
        waits: bool,
        done: &[DelayDelivery],
    ) -> Result<SlotBatch, StoreError> {
        let (mut here, mut elsewhere) = (Vec::new(), Vec::new());
        for (at, taken) in done.iter().enumerate() {
            let is_here = Arc::ptr_eq(&taken.receipt.keys, self.keys(slot)) && here.len() < MAX_BATCH;
            if is_here { &mut here } else { &mut elsewhere }.push(at);
        }
        let receipts = |indices: &[usize]| indices.iter().map(|at| &done[*at].receipt).collect::<Vec<_>>();
        let (committed_here, committed_elsewhere) = (receipts(&here), receipts(&elsewhere));
        let committing = self.settle_each(DelayScript::Done, &committed_elsewhere, None);
        let (others, asked) = join(committing, self.take_from(slot, room, waits, &committed_here)).await;
        let mut batch = asked?;
        // The messages are returned even if a commit failed.
        batch.committed = batch.committed.and_then(|own| Ok((own, others?))).map(|(own, others)| {
            let mut all: Vec<_> = here.into_iter().zip(own).chain(elsewhere.into_iter().zip(others)).collect();
            all.sort_by_key(|(at, _)| *at);
            all.into_iter().map(|(_, closing)| closing).collect()
        });
        Ok(batch)
    }

    /// Dead-letters a message that another version or program has written, for an operator to inspect.
    async fn bury_undecodable(&self, handed: &RawDelivery) -> Result<(), StoreError> {
        let reason = "it is not written as this version of the library does";
        let letter = format!("1 {} {} {} 0:{reason}", handed.first_at.0, handed.first_at.0, handed.deaths + 1);
        self.bury(&handed.receipt, &letter).await.map(drop)
    }

    /// Dead-letters a message. Returns whether the delivery was still held.
    pub(crate) async fn bury(&self, receipt: &DeliveryReceipt, letter: &str) -> Result<bool, StoreError> {
        let args = ScriptArgs::new().text(&receipt.member).number(receipt.number).text(&receipt.name).text(letter);
        Ok(self.0.servers.call(DelayScript::Bury, &receipt.keys, &args).await? == Value::Int(1))
    }

    pub(crate) async fn put_back(
        &self,
        receipt: &DeliveryReceipt,
        how: &str,
        delay: Duration,
        (attempt, first_at): (u32, u64),
        reason: &str,
    ) -> Result<Value, StoreError> {
        let args = ScriptArgs::new().text(&receipt.member).number(receipt.number).text(how).number(micros(delay));
        let args = args.number(self.0.settings.max_retries).number(attempt).number(first_at);
        let args = args.text(start_of(reason, LONGEST_REASON));
        self.0.servers.call(DelayScript::Back, &receipt.keys, &args).await
    }

    /// Calls a script for deliveries, once per slot and batch, concurrently.
    pub(crate) async fn settle_each(
        &self,
        which: DelayScript,
        receipts: &[&DeliveryReceipt],
        visible: Option<Duration>,
    ) -> Result<Vec<SettleResult>, StoreError> {
        let mut indices: Vec<usize> = (0..receipts.len()).collect();
        indices.sort_by_key(|at| Arc::as_ptr(&receipts[*at].keys));
        let of_slots = indices.chunk_by(|one, next| Arc::ptr_eq(&receipts[*one].keys, &receipts[*next].keys));
        let steps = of_slots.flat_map(|slot| slot.chunks(MAX_BATCH)).map(async |some| {
            let args = visible.map_or_else(ScriptArgs::new, |time| ScriptArgs::new().number(micros(time)));
            let named = some.iter().map(|at| receipts[*at]).collect::<Vec<_>>();
            let args = if which == DelayScript::Done { args.done(&named) } else { args.held(&named) };
            let reply = self.0.servers.call(which, &receipts[some[0]].keys, &args).await?;
            let reply = bytes(reply).and_then(|reply| parse_closings(&reply, some.len()));
            reply.map(|reply| (some, reply)).ok_or_else(|| unexpected_reply("settling"))
        });
        let mut all = vec![SettleResult::Lost; receipts.len()];
        // Awaits all calls: a failed call does not cancel the others.
        for settled in join_all(steps).await {
            let (some, reply) = settled?;
            for (at, closing) in some.iter().zip(reply) {
                all[*at] = closing;
            }
        }
        Ok(all)
    }

    pub(crate) fn keys(&self, slot: u16) -> &Arc<SlotKeys> {
        // Slot numbers are below the number of slots, which is not 0.
        let slots = &self.0.topic.slots;
        &slots[usize::from(slot) % slots.len()]
    }

    pub(crate) async fn call(
        &self,
        which: DelayScript,
        slot: u16,
        args: &ScriptArgs,
        doing: &str,
    ) -> Result<Value, DelayError> {
        let reply = self.0.servers.call(which, self.keys(slot), args).await;
        reply.map_err(|error| delay_error(doing, error))
    }

    /// Returns whether the servers notify this process of messages that become due earlier.
    pub(crate) fn is_listening(&self) -> bool {
        self.0.servers.hub.is_listening()
    }

    pub(crate) fn slot_for(&self, basis: Option<&str>) -> u16 {
        let turn = || self.0.turn.fetch_add(1, Ordering::Relaxed) % usize::from(self.0.settings.slots);
        basis.map_or_else(|| u16::try_from(turn()).unwrap_or_default(), |basis| self.0.topic.slot_of(basis))
    }
}

/// Maximum number of messages of one call. Other clients wait while the server runs a script.
pub(crate) const MAX_BATCH: usize = 256;

pub(crate) fn micros(time: Duration) -> u64 {
    // Rounded up to a whole µs, so that no message is early.
    u64::try_from(time.as_nanos().div_ceil(1_000)).unwrap_or(u64::MAX).min(8_000_000_000_000_000)
}

struct TakeReply {
    again: Option<Duration>,
    died: u64,
    committed: Vec<u8>,
    handed: Vec<RawDelivery>,
}

fn parse_take(reply: Value, slot: u16, keys: &Arc<SlotKeys>) -> Option<TakeReply> {
    let mut items = ReplyItems::of(reply)?;
    let (now, again, died) = (items.number()?, items.signed()?, items.number()?);
    let again = u64::try_from(again).ok().map(|at| Duration::from_micros(at.saturating_sub(now)));
    let (committed, mut handed) = (items.bytes()?, Vec::new());
    while !items.is_empty() {
        let (members, states, values) = (items.text()?, items.all()?, items.all()?);
        let (mut members, mut states) = (members.split(' '), states.into_iter());
        for value in values {
            let (member, state) = (members.next()?, states.next().and_then(bytes));
            // The body was evicted, so there is nothing to deliver.
            if value != Value::Nil {
                handed.push(RawDelivery::read(member, state, bytes(value)?, slot, keys, now)?);
            }
        }
    }
    Some(TakeReply { again, died, committed, handed })
}

/// Parses one digit per settled delivery.
fn parse_closings(reply: &[u8], count: usize) -> Option<Vec<SettleResult>> {
    let closing = |digit: &u8| match digit {
        b'1' => Some(SettleResult::Done),
        b'0' => Some(SettleResult::Lost),
        _ => None,
    };
    reply.iter().map(closing).collect::<Option<Vec<_>>>().filter(|all| all.len() == count)
}
