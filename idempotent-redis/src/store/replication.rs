//! What follows where a write has not got as far as it should.
use std::time::Duration;

use idempotent_core::{
    Claim, ClaimRequest, Completion, Grant, Held, Release, Settled, StoreError, StoreErrorKind, Verdict, protocol,
};

use crate::RedisStore;
use crate::batching::call::{ReplyBody, ScriptCall, ScriptReply};
use crate::cache::CacheGeneration;
use crate::durability::{Durability, UnconfirmedReplicas, count};
use crate::store::BUDGET;
use crate::store::replies;

impl RedisStore {
    /// The answer to a claim: one that too few replicas have is none.
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
        let held = Held { key: request.key.clone(), owner: request.owner, fencing: Some(grant.fencing) };
        let unconfirmed = match unconfirmed {
            // Its first copy wrote, over a connection that is gone perhaps: this one has nothing to wait for yet.
            None if repeated => self.confirmed(&held, grant.lease).await?,
            unconfirmed => unconfirmed,
        };
        match unconfirmed {
            None => Ok(claim),
            Some(unconfirmed) => Err(self.give_back(&held, request, grant, unconfirmed).await),
        }
    }

    /// How far a claim that stands has got. Whatever comes between does not undo it.
    async fn confirmed(&self, held: &Held, lease: Duration) -> Result<Option<UnconfirmedReplicas>, StoreError> {
        let (reply, settled) = match self.0.topology.call(&ScriptCall::confirm(held, lease), BUDGET).await {
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

    /// By its own token, as if it had never been; where that fails, it stands until the lease ends it.
    async fn give_back(
        &self,
        held: &Held,
        request: &ClaimRequest,
        grant: &Grant,
        unconfirmed: UnconfirmedReplicas,
    ) -> StoreError {
        count(&self.0.counters.claims);
        let error = "given back: too few replicas had it".into();
        // What the one before left is counted in either case.
        let verdict =
            if request.max_attempts > 0 || grant.taken_over.is_some() { Verdict::Refund } else { Verdict::Delete };
        let release = Release { verdict, delay: Duration::ZERO, memory: request.memory, error };
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

    /// The answer to a completion. One that too few replicas have stands all the same: the handler has run.
    pub(crate) fn completed(
        &self,
        held: &Held,
        completion: &Completion,
        generation: Option<CacheGeneration>,
        answer: &ScriptReply,
    ) -> Result<Settled, StoreError> {
        self.remember(held, completion, generation, answer);
        let settled = replies::settled(answer, |found, now| protocol::complete(found, held, completion, now))?;
        let lacks = match (&answer.body, answer.unconfirmed) {
            (ReplyBody::Empty, Some(unconfirmed)) => unconfirmed.to_string(),
            // Its first copy wrote, over a connection that is gone perhaps: this one had nothing to wait for.
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
