//! The steps before the claim: everything that can be refused without asking the store.
use std::time::Duration;

use super::prepared::{After, Prepared};
use super::report::Report;
use crate::context::TaskContext;
use crate::engine::{Engine, draining};
use crate::executor::Call;
use crate::ordering::{Named, OrderingRequest, SequencePosition};
use crate::policy::ResolvedPolicy;
use crate::transaction::CallStore;
use crate::{ClaimRequest, Identity, Key, KeyError, OnStoreError, OwnerToken, PolicyError, Rejection, Scene};

/// Everything that can be refused without asking the store.
pub(super) fn prepare(
    engine: &Engine,
    call: Call,
    frame: &TaskContext,
    report: &mut Report<'_>,
) -> Result<Box<Prepared>, Rejection> {
    if !engine.has_runtime() {
        return Err(Rejection::NoRuntime);
    }
    let Call { identity, fingerprint, policy, message, issued, comes, via, site } = call;
    if let Some(site) = site {
        site.enter(&identity);
    }
    let key = identity.key(&engine.namespace)?;
    report.keyed(&key);
    // A window is for calls that are told apart by what they say, and would stand for a spent token's retention.
    let policy = if issued.is_some() { policy.window(Duration::ZERO) } else { policy };
    let mut terms = engine.terms(&identity.scene, policy)?;
    if let Some(ttl) = issued {
        terms.of_token(ttl);
    }
    let comes = comes.map(|comes| predecessor(engine, *comes, &identity, &key, frame)).transpose()?;
    if comes.is_some() {
        terms.on_store_error = OnStoreError::Fail;
    }
    let marked =
        frame.delivered.filter(|_| via.as_ref().is_some_and(CallStore::forgets_attempts) && !frame.is_inside());
    let via = via.map(|via| via.under(&mut terms)).transpose()?;
    if let Some(scope) = frame.runs(&key) {
        return Err(Rejection::Nested { scope: scope.into() });
    }
    // What runs may finish, with the runs inside it.
    let inside = frame.is_inside();
    if let Some(redelivery) = frame.redelivery.as_ref().filter(|_| !inside && identity.scene == Scene::Mq) {
        terms.fits(redelivery)?;
    }
    if engine.is_draining() && !inside {
        return Err(draining());
    }
    let fingerprint = fingerprint?;
    // Zero stands for a token that was not kept: whoever draws it is not to be mistaken for nobody.
    let owner = OwnerToken(engine.entropy.bits()?.max(1));
    let mut request = request(&identity, key, owner, fingerprint, &terms);
    if issued.is_some() {
        // Its issue is on record as an attempt.
        request.max_attempts = request.max_attempts.saturating_add(1);
    }
    Ok(Box::new(Prepared { request, terms, message, issued: issued.is_some(), inside, comes, via, marked }))
}

fn predecessor(
    engine: &Engine,
    comes: OrderingRequest,
    own: &Identity,
    key: &Key,
    frame: &TaskContext,
) -> Result<Box<After>, Rejection> {
    let of = |named: Named, what| named.key(own, &engine.namespace, what);
    Ok(Box::new(match comes {
        OrderingRequest::After(named) => {
            let after = of(named, "after")?;
            in_its_turn(&after, key, frame)?;
            After::Call(after)
        }
        OrderingRequest::SequencePosition(stream, number) => {
            if engine.store.abilities().order.is_none() {
                return Err(PolicyError::no_order(&engine.store).into());
            }
            After::Line(SequencePosition::new(&of(stream, "sequence")?, number))
        }
    }))
}

/// A call cannot come after itself, nor inside a run of what it comes after: it would wait for ever.
fn in_its_turn(after: &Key, own: &Key, frame: &TaskContext) -> Result<(), Rejection> {
    if after == own {
        return Err(KeyError::AfterItself.into());
    }
    match frame.runs(after) {
        Some(scope) => Err(Rejection::Nested { scope: scope.into() }),
        None => Ok(()),
    }
}

fn request(
    identity: &Identity,
    key: Key,
    owner: OwnerToken,
    fingerprint: Option<crate::Fingerprint>,
    terms: &ResolvedPolicy,
) -> ClaimRequest {
    ClaimRequest {
        key,
        owner,
        lease: terms.lease,
        fingerprint,
        max_attempts: terms.max_attempts(),
        on_expiry: terms.on_expiry,
        memory: terms.memory,
        display: identity.display(terms.display_key),
    }
}
