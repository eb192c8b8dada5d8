//! What follows where a write has not got as far as it should.
use idempotent_core::{Claim, ClaimRequest, Completion, Grant, Held, Release, StoreError, StoreErrorKind, Verdict};

use crate::RedisStore;
use crate::answer;
use crate::cache::Asked;
use crate::call::{Answer, Call, Said};
use crate::durability::{Durability, Missing, count};
use crate::store::BUDGET;

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
        let claim = answer::claim(said, request, &self.0.hub.cache, asked)?;
        let Claim::Acquired(grant) = &claim else { return Ok(claim) };
        if self.0.durability == Durability::Primary {
            return Ok(claim);
        }
        let held = Held { key: request.key.clone(), owner: request.owner, fencing: Some(grant.fencing) };
        let missing = match missing {
            // Its first copy wrote, over a connection that is gone perhaps: this one has nothing to wait for yet.
            None if repeated => self.0.topology.ask(&Call::confirm(&held, grant.lease), BUDGET).await?.missing,
            missing => missing,
        };
        match missing {
            None => Ok(claim),
            Some(missing) => Err(self.give_back(&held, request, grant, missing).await),
        }
    }

    /// By its own token, as if it had never been; where that fails, the lease ends it.
    async fn give_back(&self, held: &Held, request: &ClaimRequest, grant: &Grant, missing: Missing) -> StoreError {
        count(&self.0.counters.claims);
        let error = "given back: too few replicas had it".into();
        // What the one before left is counted in either case.
        let verdict =
            if request.max_attempts > 0 || grant.taken_over.is_some() { Verdict::Refund } else { Verdict::Delete };
        let release = Release { verdict, delay: std::time::Duration::ZERO, memory: request.memory, error };
        let left = match self.0.topology.ask(&Call::release(held, &release), BUDGET).await {
            Ok(Answer { said: Said::Plain, .. }) => "it was given back",
            _ => "it could not be given back and ends with its lease",
        };
        StoreError::new(StoreErrorKind::NotApplied).because(format!("the claim is not durable: {missing}; {left}"))
    }

    /// A completion that too few replicas have stands all the same: the handler has run.
    pub(crate) fn completed(&self, held: &Held, completion: &Completion, asked: Option<Asked>, answer: &Answer) {
        self.remember(held, completion, asked, answer);
        if let (Said::Plain, Some(missing)) = (&answer.said, answer.missing) {
            count(&self.0.counters.completions);
            tracing::warn!(target: "idempotent", key = %held.key, missing = %missing,
                "a completion is not durable: a failover may lose it, and the handler would run again");
        }
    }
}
