//! Completions: by the whole record if the grant's terms are known, otherwise by owner and fencing number.
use idempotent_core::{ClaimHandle, Completion, Consumed, Settled, StoreError};

use crate::RedisStore;
use crate::batching::call::ScriptCall;
use crate::batching::call::reply::{ReplyBody, ScriptReply};
use crate::cache::{CacheGeneration, PayloadKnowledge};
use crate::store::BUDGET;

impl RedisStore {
    pub(crate) async fn complete_one(
        &self,
        held: &ClaimHandle,
        completion: &Completion,
    ) -> Result<Settled, StoreError> {
        let generation = self.0.hub.cache.generation();
        if let Some(call) = ScriptCall::replace(held, completion) {
            let answer = self.0.call(&call, BUDGET).await?;
            if !answer.differs() {
                self.prolong(held, completion, &answer).await?;
                return self.completed(held, completion, (generation, whole_record(held)), &answer);
            }
        }
        let answer = self.0.call(&ScriptCall::complete(held, completion), BUDGET).await?;
        self.completed(held, completion, (generation, PayloadKnowledge::Unknown), &answer)
    }

    /// Keeps a record that a command has completed until the clock has passed its number. A script does so itself.
    async fn prolong(
        &self,
        held: &ClaimHandle,
        completion: &Completion,
        answer: &ScriptReply,
    ) -> Result<(), StoreError> {
        match ScriptCall::prolong(held, completion, answer.now) {
            Some(call) if answer.is_native => self.0.call(&call, BUDGET).await.map(drop),
            _ => Ok(()),
        }
    }

    /// Completes runs in one batch. A second batch completes those whose record is not as granted.
    pub(crate) async fn complete_in_one_batch(
        &self,
        done: &[(ClaimHandle, Completion)],
    ) -> Vec<Result<Settled, StoreError>> {
        let generation = self.0.hub.cache.generation();
        let complete = |at: usize| ScriptCall::complete(&done[at].0, &done[at].1);
        let whole: Vec<_> = done.iter().map(|(held, completion)| ScriptCall::replace(held, completion)).collect();
        let mut is_whole: Vec<bool> = whole.iter().map(Option::is_some).collect();
        let calls: Vec<_> =
            whole.into_iter().enumerate().map(|(at, call)| call.unwrap_or_else(|| complete(at))).collect();
        let mut replies = self.0.call_all(&calls, BUDGET).await;
        let differs = |at: &usize| replies[*at].as_ref().is_ok_and(ScriptReply::differs);
        let differing: Vec<usize> = (0..done.len()).filter(differs).collect();
        if !differing.is_empty() {
            let calls: Vec<_> = differing.iter().map(|at| complete(*at)).collect();
            for (at, reply) in differing.into_iter().zip(self.0.call_all(&calls, BUDGET).await) {
                (replies[at], is_whole[at]) = (reply, false);
            }
        }
        let mut settled = Vec::with_capacity(done.len());
        for (((held, completion), reply), is_whole) in done.iter().zip(replies).zip(is_whole) {
            settled.push(match reply {
                Ok(reply) if is_whole => match self.prolong(held, completion, &reply).await {
                    Ok(()) => self.completed(held, completion, (generation, whole_record(held)), &reply),
                    Err(error) => Err(error),
                },
                Ok(reply) => self.completed(held, completion, (generation, PayloadKnowledge::Unknown), &reply),
                Err(error) => Err(error),
            });
        }
        settled
    }

    /// Records in the cache that this process has completed a run.
    pub(crate) fn remember(
        &self,
        held: &ClaimHandle,
        completion: &Completion,
        (generation, payload): (Option<CacheGeneration>, PayloadKnowledge),
        answer: &ScriptReply,
    ) {
        // Only for a result that this call has written: if the key was already consumed, the first result is kept.
        if let (ReplyBody::Empty, Some(fencing)) = (&answer.body, held.fencing) {
            let consumed = Consumed { fencing, value: completion.value.clone() };
            self.0.hub.cache.insert(&held.key, generation, completion.retain, payload, &consumed);
        }
    }
}

/// Returns the payload of a record that was compared as a whole.
fn whole_record(held: &ClaimHandle) -> PayloadKnowledge {
    held.terms.as_ref().map_or(PayloadKnowledge::Unknown, |terms| PayloadKnowledge::Known(terms.fingerprint))
}
