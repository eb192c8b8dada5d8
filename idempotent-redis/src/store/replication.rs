//! What follows where a write has not got as far as it should.
use std::time::Duration;

use idempotent_core::{
    Claim, ClaimRequest, Completion, Grant, Held, Release, Settled, StoreError, StoreErrorKind, Verdict, protocol,
};

use crate::RedisStore;
use crate::batching::call::{Answer, Call, Said};
use crate::cache::Asked;
use crate::durability::{Durability, Missing, count};
use crate::store::BUDGET;
use crate::store::replies;

impl RedisStore {
    /// The answer to a claim: one that too few replicas have is none.
    pub(crate) async fn granted(
        &self,
        said: Answer,
        request: &ClaimRequest,
        asked: Option<Asked>,
    ) -> Result<Claim, StoreError> {
        let missing = said.missing;
        let repeated = matches!(&said.said, Said::Text(text) if text.first() == Some(&b'R'));
        let claim = replies::claim(said, request, &self.0.hub.cache, asked)?;
        let Claim::Acquired(grant) = &claim else { return Ok(claim) };
        if self.0.durability == Durability::Primary {
            return Ok(claim);
        }
        let held = Held { key: request.key.clone(), owner: request.owner, fencing: Some(grant.fencing) };
        let missing = match missing {
            // Its first copy wrote, over a connection that is gone perhaps: this one has nothing to wait for yet.
            None if repeated => self.confirmed(&held, grant.lease).await?,
            missing => missing,
        };
        match missing {
            None => Ok(claim),
            Some(missing) => Err(self.give_back(&held, request, grant, missing).await),
        }
    }

    /// How far a claim that stands has got. Whatever comes between does not undo it.
    async fn confirmed(&self, held: &Held, lease: Duration) -> Result<Option<Missing>, StoreError> {
        let (said, settled) = match self.0.topology.ask(&Call::confirm(held, lease), BUDGET).await {
            Ok(said) => {
                let settled = replies::settled(&said, |found, now| protocol::renew(found, held, lease, now));
                (said.missing, settled)
            }
            Err(error) => (None, Err(error)),
        };
        match settled {
            Ok(Settled::Done) => Ok(said),
            Ok(_) => Err(StoreError::new(StoreErrorKind::NotApplied).because("the claim was lost again meanwhile")),
            Err(error) => Err(StoreError::new(StoreErrorKind::Ambiguous)
                .because(format!("the claim stands, and whether it is durable could not be asked: {error}"))),
        }
    }

    /// By its own token, as if it had never been; where that fails, it stands until the lease ends it.
    async fn give_back(&self, held: &Held, request: &ClaimRequest, grant: &Grant, missing: Missing) -> StoreError {
        count(&self.0.counters.claims);
        let error = "given back: too few replicas had it".into();
        // What the one before left is counted in either case.
        let verdict =
            if request.max_attempts > 0 || grant.taken_over.is_some() { Verdict::Refund } else { Verdict::Delete };
        let release = Release { verdict, delay: Duration::ZERO, memory: request.memory, error };
        let call = Call::release(held, &release);
        let given = self.settle(&call, |found, now| protocol::release(found, held, &release, now));
        let (kind, left) = match given.await {
            Ok(Settled::Done) => (StoreErrorKind::NotApplied, "it was given back".to_owned()),
            Ok(_) => (StoreErrorKind::NotApplied, "it was lost again meanwhile".to_owned()),
            Err(error) => {
                let left = format!("it could not be given back, and ends with its lease: {error}");
                (StoreErrorKind::Ambiguous, left)
            }
        };
        StoreError::new(kind).because(format!("the claim is not durable: {missing}; {left}"))
    }

    /// The answer to a completion. One that too few replicas have stands all the same: the handler has run.
    pub(crate) fn completed(
        &self,
        held: &Held,
        completion: &Completion,
        asked: Option<Asked>,
        answer: &Answer,
    ) -> Result<Settled, StoreError> {
        self.remember(held, completion, asked, answer);
        let settled = replies::settled(answer, |found, now| protocol::complete(found, held, completion, now))?;
        let lacks = match (&answer.said, answer.missing) {
            (Said::Plain, Some(missing)) => missing.to_string(),
            // Its first copy wrote, over a connection that is gone perhaps: this one had nothing to wait for.
            (Said::Text(_), _) if settled == Settled::Done && self.0.durability != Durability::Primary => {
                "it was asked again, and who has the first is not known".to_owned()
            }
            _ => return Ok(settled),
        };
        count(&self.0.counters.completions);
        tracing::warn!(target: "idempotent", key = %held.key, missing = %lacks,
            "a completion is not known to be durable: a failover may lose it, and the handler would run again");
        Ok(settled)
    }
}
