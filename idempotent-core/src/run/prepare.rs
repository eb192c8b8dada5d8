//! The checks before the claim, which need no store.
use std::sync::Arc;
use std::time::Duration;

use super::prepared::{Prepared, ResolvedOrdering};
use super::report::Report;
use crate::context::TaskContext;
use crate::engine::{Engine, draining_rejection};
use crate::executor::Call;
use crate::ordering::{Named, OrderingRequest, SequencePosition};
use crate::policy::ResolvedPolicy;
use crate::transaction::CallStore;
use crate::{
    ClaimRequest, Identity, Key, KeyError, OnInFlight, OnStoreError, OwnerToken, Policy, PolicyError, Rejection, Scene,
};

/// Checks and resolves a call before its claim.
pub(super) fn prepare(
    engine: &Engine,
    call: Call,
    context: &TaskContext,
    report: &mut Report<'_>,
) -> Result<Arc<Prepared>, Rejection> {
    if !engine.has_runtime() {
        return Err(Rejection::NoRuntime);
    }
    let Call { identity, fingerprint, policy, message, token_ttl, ordering, transaction_store, site } = call;
    if let Some(site) = site {
        site.register_call(&identity);
    }
    let key = identity.key(&engine.namespace)?;
    report.set_key(&key);
    // A window distinguishes calls by their payload, and would replace the retention of a spent token.
    let mut overrides = policy;
    if token_ttl.is_some() {
        overrides = Some(Box::new(overrides.as_deref().copied().unwrap_or_default().window(Duration::ZERO)));
    }
    // The consumer of a logged delivery acknowledges such a duplicate, so the run rejects it like any other.
    let acks_in_flight =
        overrides.as_deref().is_some_and(Policy::acks_in_flight) && context.delivery.is_logged && !context.is_nested();
    report.set_acks_in_flight(acks_in_flight);
    if let Some(overrides) = overrides.as_deref_mut().filter(|_| acks_in_flight) {
        *overrides = overrides.on_in_flight(OnInFlight::Retry);
    }
    let mut policy = engine.resolve_policy(&identity.scene, overrides.as_deref())?;
    if let Some(ttl) = token_ttl {
        Arc::make_mut(&mut policy).of_token(ttl);
    }
    let ordering =
        ordering.map(|ordering| resolve_ordering(engine, *ordering, &identity, &key, context)).transpose()?;
    if ordering.is_some() {
        Arc::make_mut(&mut policy).on_store_error = OnStoreError::Fail;
    }
    let delivery_attempt = context
        .delivery
        .attempt
        .filter(|_| transaction_store.as_ref().is_some_and(CallStore::forgets_attempts) && !context.is_nested());
    let transaction_store =
        transaction_store.map(|transaction_store| transaction_store.resolve(Arc::make_mut(&mut policy))).transpose()?;
    if let Some(scope) = context.scope_of_run(&key) {
        return Err(Rejection::Nested { scope: scope.into() });
    }
    // Runs in progress may finish during a drain, including the runs nested inside them.
    let is_nested = context.is_nested();
    if let Some(redelivery) = context.delivery.redelivery.as_ref().filter(|_| !is_nested && identity.scene == Scene::Mq)
    {
        policy.fits(redelivery)?;
    }
    if engine.is_draining() && !is_nested {
        return Err(draining_rejection());
    }
    let fingerprint = fingerprint?;
    let owner = engine.new_owner()?;
    let mut request = claim_request(&identity, key, owner, fingerprint, &policy);
    if token_ttl.is_some() {
        // The issue of the token is recorded as an attempt.
        request.max_attempts = request.max_attempts.saturating_add(1);
    }
    let prepared = Arc::new(Prepared {
        request,
        policy,
        message: message.or_else(|| engine.duplicate_messages.clone()),
        is_token: token_ttl.is_some(),
        is_nested,
        ordering,
        transaction_store,
        delivery_attempt,
    });
    report.admit(context, &prepared)?;
    Ok(prepared)
}

fn resolve_ordering(
    engine: &Engine,
    ordering: OrderingRequest,
    own: &Identity,
    key: &Key,
    context: &TaskContext,
) -> Result<Box<ResolvedOrdering>, Rejection> {
    let resolve = |named: Named, argument| named.key(own, &engine.namespace, argument);
    Ok(Box::new(match ordering {
        OrderingRequest::After(named) => {
            let after = resolve(named, "after")?;
            check_predecessor(&after, key, context)?;
            ResolvedOrdering::After(after)
        }
        OrderingRequest::Sequence(stream, number) => {
            if engine.store.capabilities().order.is_none() {
                return Err(PolicyError::no_order(&engine.store).into());
            }
            ResolvedOrdering::Sequence(SequencePosition::new(&resolve(stream, "sequence")?, number))
        }
    }))
}

/// Rejects a call that would wait forever: one that comes after itself, or after a run that it is nested in.
fn check_predecessor(after: &Key, own: &Key, context: &TaskContext) -> Result<(), Rejection> {
    if after == own {
        return Err(KeyError::AfterItself.into());
    }
    match context.scope_of_run(after) {
        Some(scope) => Err(Rejection::Nested { scope: scope.into() }),
        None => Ok(()),
    }
}

fn claim_request(
    identity: &Identity,
    key: Key,
    owner: OwnerToken,
    fingerprint: Option<crate::Fingerprint>,
    policy: &ResolvedPolicy,
) -> ClaimRequest {
    ClaimRequest {
        key,
        owner,
        lease: policy.lease,
        fingerprint,
        max_attempts: policy.max_attempts(),
        on_expiry: policy.on_expiry,
        retention: policy.retain_failures,
        display: identity.display(policy.display_key),
    }
}
