//! Claims: by the script, or by a command where that is enabled and suffices.
//!
//! A command writes a claim if the key is absent, with a fencing number that the client has estimated. The number is valid if
//! it is at least the server's time after the write: then it is higher than the number of any earlier grant of the key. The
//! script decides all other cases. See decision 0070.
use std::time::Instant;

use idempotent_core::protocol::{self, Write};
use idempotent_core::{Claim, ClaimRequest, StoreError, Timestamp};

use crate::RedisStore;
use crate::batching::call::ScriptCall;
use crate::batching::call::reply::{ReplyBody, ScriptReply};
use crate::cache::CacheGeneration;
use crate::durability::Durability;
use crate::record::decode;
use crate::store::{budget, replies};

impl RedisStore {
    /// Claims one key.
    pub(crate) async fn claim_on_server(&self, request: &ClaimRequest) -> Result<Claim, StoreError> {
        let generation = self.0.hub.cache.generation();
        let pending = self.0.unanswered.watch(std::slice::from_ref(request));
        let reply = self.claim_reply(request, generation).await;
        pending.answered(std::slice::from_ref(&reply));
        if self.0.durability == Durability::Primary {
            return replies::claim(reply?, request, &self.0.hub.cache, generation);
        }
        Box::pin(self.granted(reply?, request, generation)).await
    }

    async fn claim_reply(
        &self,
        request: &ClaimRequest,
        generation: Option<CacheGeneration>,
    ) -> Result<ScriptReply, StoreError> {
        let (call, until) = (self.claim_call(request, generation), Instant::now() + budget(request.lease));
        let reply = self.0.call(&call, budget(request.lease)).await?;
        match follow_up(&call, request, &reply) {
            None => Ok(reply),
            Some(call) => {
                let rest = until.saturating_duration_since(Instant::now());
                Box::pin(self.0.call(&call, rest)).await
            }
        }
    }

    /// Claims keys in one batch. A second batch claims those that only the script can decide.
    pub(crate) async fn claim_replies(
        &self,
        requests: &[ClaimRequest],
        generation: Option<CacheGeneration>,
    ) -> Vec<Result<ScriptReply, StoreError>> {
        let budget = requests.iter().map(|request| budget(request.lease)).min().unwrap_or_default();
        let until = Instant::now() + budget;
        let calls: Vec<_> = requests.iter().map(|request| self.claim_call(request, generation)).collect();
        let mut replies = self.0.call_all(&calls, budget).await;
        let follow =
            |at: usize| follow_up(&calls[at], &requests[at], replies[at].as_ref().ok()?).map(|call| (at, call));
        let (places, calls): (Vec<usize>, Vec<ScriptCall>) = (0..requests.len()).filter_map(follow).unzip();
        if !calls.is_empty() {
            let rest = until.saturating_duration_since(Instant::now());
            for (at, reply) in places.into_iter().zip(self.0.call_all(&calls, rest).await) {
                replies[at] = reply;
            }
        }
        replies
    }

    /// Creates the call for a claim. A repeated claim must be the script, which raises its number.
    fn claim_call(&self, request: &ClaimRequest, generation: Option<CacheGeneration>) -> ScriptCall {
        let call = ScriptCall::claim(request, generation.is_some());
        if self.0.unanswered.contains(request.owner) { call.scripted(true) } else { call }
    }
}

/// Returns the script call for a claim that its command has not decided.
fn follow_up(call: &ScriptCall, request: &ClaimRequest, reply: &ScriptReply) -> Option<ScriptCall> {
    if !reply.is_native {
        return None;
    }
    match &reply.body {
        ReplyBody::Late => Some(call.scripted(true)),
        ReplyBody::Undecided => Some(call.scripted(false)),
        ReplyBody::Tagged(found) => {
            let record = decode(found.get(1..)?, Timestamp::FOREVER).ok();
            let writes = |record| protocol::claim(Some(&record), request, Timestamp(reply.now)).1 != Write::Keep;
            // The script reports a record that cannot be read.
            record.is_none_or(writes).then(|| call.scripted(false))
        }
        _ => None,
    }
}
