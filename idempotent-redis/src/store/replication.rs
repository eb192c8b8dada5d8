//! Handling of writes that are less durable than requested.
use std::time::Duration;

use idempotent_core::{
    Claim, ClaimHandle, ClaimRequest, Completion, Grant, Release, ReleaseKind, Settled, StoreError, StoreErrorKind,
    protocol,
};

use crate::RedisStore;
use crate::batching::call::ScriptCall;
use crate::batching::call::reply::{ReplyBody, ScriptReply};
use crate::cache::{CacheGeneration, PayloadKnowledge};
use crate::durability::{Durability, UnconfirmedReplicas, count};
use crate::store::BUDGET;
use crate::store::replies;

impl RedisStore {
    /// Returns the result of a claim, which fails if too few replicas acknowledged it.
    pub(crate) async fn granted(
        &self,
        reply: ScriptReply,
        request: &ClaimRequest,
        generation: Option<CacheGeneration>,
    ) -> Result<Claim, StoreError> {
        let unconfirmed = reply.unconfirmed;
        let repeated = matches!(&reply.body, ReplyBody::Tagged(text) if text.first() == Some(&b'R'));
        let claim = replies::claim(reply, request, &self.0.hub.cache, generation)?;
        let Claim::Acquired(grant) = &claim else { return Ok(claim) };
        if self.0.durability == Durability::Primary {
            return Ok(claim);
        }
        let held = ClaimHandle::granted(request, grant);
        let unconfirmed = match unconfirmed {
            // The first attempt wrote the claim, possibly over a closed connection. This attempt wrote nothing to wait
            // for.
            None if repeated => self.confirmed(&held, grant.lease).await?,
            unconfirmed => unconfirmed,
        };
        match unconfirmed {
            None => Ok(claim),
            Some(unconfirmed) => Err(self.give_back(&held, request, grant, unconfirmed).await),
        }
    }

    /// Renews a recorded claim to wait for its replication. A failure does not undo the claim.
    async fn confirmed(&self, held: &ClaimHandle, lease: Duration) -> Result<Option<UnconfirmedReplicas>, StoreError> {
        let (reply, settled) = match self.0.call(&ScriptCall::confirm(held, lease), BUDGET).await {
            Ok(reply) => {
                let settled = replies::settled(&reply, |found, now| protocol::renew(found, held, lease, now));
                (reply.unconfirmed, settled)
            }
            Err(error) => (None, Err(error)),
        };
        match settled {
            Ok(Settled::Done) => Ok(reply),
            Ok(_) => Err(StoreError::new(StoreErrorKind::NotApplied).because("the claim was lost in the meantime")),
            Err(error) => Err(StoreError::new(StoreErrorKind::Ambiguous)
                .because(format!("the claim is recorded, but its durability could not be confirmed: {error}"))),
        }
    }

    /// Releases the claim with its own token, as if the claim had never been made. If the release fails, the claim
    /// expires with its lease.
    async fn give_back(
        &self,
        held: &ClaimHandle,
        request: &ClaimRequest,
        grant: &Grant,
        unconfirmed: UnconfirmedReplicas,
    ) -> StoreError {
        count(&self.0.counters.claims);
        let error = "given back: too few replicas had it".into();
        // The takeover of a crashed attempt stays counted in both cases.
        let verdict = if request.max_attempts > 0 || grant.taken_over.is_some() {
            ReleaseKind::Refund
        } else {
            ReleaseKind::Delete
        };
        let release = Release { kind: verdict, delay: Duration::ZERO, retention: request.retention, error };
        let call = ScriptCall::release(held, &release);
        let given = self.settle(&call, |found, now| protocol::release(found, held, &release, now));
        let (kind, left) = match given.await {
            Ok(Settled::Done) => (StoreErrorKind::NotApplied, "it was released".to_owned()),
            Ok(_) => (StoreErrorKind::NotApplied, "it was lost in the meantime".to_owned()),
            Err(error) => {
                let left = format!("it could not be released and expires with its lease: {error}");
                (StoreErrorKind::Ambiguous, left)
            }
        };
        StoreError::new(kind).because(format!("claim is not durable: {unconfirmed}; {left}"))
    }

    /// Returns the result of a completion. A completion that too few replicas acknowledged remains valid, because the handler
    /// has run.
    pub(crate) fn completed(
        &self,
        held: &ClaimHandle,
        completion: &Completion,
        known: (Option<CacheGeneration>, PayloadKnowledge),
        answer: &ScriptReply,
    ) -> Result<Settled, StoreError> {
        self.remember(held, completion, known, answer);
        let settled = replies::settled(answer, |found, now| protocol::complete(found, held, completion, now))?;
        let lacks = match (&answer.body, answer.unconfirmed) {
            (ReplyBody::Empty, Some(unconfirmed)) => unconfirmed.to_string(),
            // The first attempt wrote the completion, possibly over a closed connection. This attempt had nothing to
            // wait for.
            (ReplyBody::Tagged(_), _) if settled == Settled::Done && self.0.durability != Durability::Primary => {
                "the call was repeated, and the replication of the first attempt is unknown".to_owned()
            }
            _ => return Ok(settled),
        };
        count(&self.0.counters.completions);
        tracing::warn!(target: "idempotent", key = %held.key, missing = %lacks,
            "completion may not be durable; a failover can lose it, and the handler would run again");
        Ok(settled)
    }
}
