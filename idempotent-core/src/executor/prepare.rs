//! A call made ready to be claimed, with all that can be refused before the store is asked.
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::line::InLine;
use super::report::Report;
use super::{Call, Executor};
use crate::context::Frame;
use crate::order::{Comes, Named};
use crate::policy::Terms;
use crate::transaction::{OneRun, Via};
use crate::{
    ClaimRequest, Fencing, Held, Identity, Key, KeyError, OnConsumed, OnStoreError, OwnerToken, PolicyError, Rejection,
    Scene, Store,
};

/// A call made ready to be claimed.
pub(super) struct Prepared {
    pub(super) request: ClaimRequest,
    pub(super) terms: Terms,
    message: Option<Arc<str>>,
    /// The key must have been issued before.
    pub(super) issued: bool,
    /// Inside another run: that one may finish while the executor drains, and so may this.
    pub(super) inside: bool,
    /// What it comes after.
    pub(super) comes: Option<Box<After>>,
    /// A store of its own, whose steps are those of its transaction.
    pub(super) via: Option<Arc<dyn OneRun>>,
    /// Which attempt it is by the delivery's mark, where the record's count is rolled back with its transaction.
    pub(super) marked: Option<u32>,
}

/// What a call comes after, by its key.
pub(super) enum After {
    Call(Key),
    Line(InLine),
}

impl Prepared {
    pub(super) fn held(&self, fencing: Option<Fencing>) -> Held {
        Held { key: self.request.key.clone(), owner: self.request.owner, fencing }
    }

    /// Where the run is claimed, completed and released.
    pub(super) fn store<'s>(&'s self, executor: &'s Executor) -> &'s dyn Store {
        self.via.as_deref().map_or(&*executor.0.store, |own| own)
    }

    /// What it comes after, for people. Names only what keys show: no part of an identity.
    pub(super) fn waits_for(&self) -> String {
        match self.comes.as_deref() {
            Some(After::Call(after)) => format!("it comes after `{after}`"),
            Some(After::Line(place)) => place.to_string(),
            None => String::new(),
        }
    }

    pub(super) fn refuses_duplicates(&self) -> bool {
        self.terms.on_consumed == OnConsumed::Refuse
    }

    /// What a duplicate in flight is told.
    pub(super) fn in_flight(&self, retry_after: Duration) -> Rejection {
        Rejection::InFlight { retry_after, message: self.message.clone() }
    }

    /// What a duplicate that gets no result is told, with this much left of the window.
    pub(super) fn duplicate(&self, rest: Duration) -> Rejection {
        let retry_after = (!self.terms.window.is_zero()).then_some(rest);
        Rejection::Duplicate { retry_after, message: self.message.clone() }
    }
}

impl Executor {
    /// Returns true in a tokio runtime with a timer. tokio tells of a missing timer only by a panic where one is made: the first
    /// call makes one here, before its claim.
    fn has_runtime(&self) -> bool {
        if tokio::runtime::Handle::try_current().is_err() {
            return false;
        }
        let clock = &*self.0.clock;
        if !self.0.has_timer.load(Ordering::Relaxed) && clock.is_real_time() {
            let made = catch_unwind(AssertUnwindSafe(|| drop(clock.sleep_until(clock.now()))));
            self.0.has_timer.store(made.is_ok(), Ordering::Relaxed);
            return made.is_ok();
        }
        true
    }

    /// Everything that can be refused without asking the store.
    pub(super) fn prepare(
        &self,
        call: Call,
        frame: &Frame,
        report: &mut Report<'_>,
    ) -> Result<Box<Prepared>, Rejection> {
        if !self.has_runtime() {
            return Err(Rejection::NoRuntime);
        }
        let Call { identity, fingerprint, policy, message, issued, comes, via, site } = call;
        if let Some(site) = site {
            site.enter(&identity);
        }
        let key = identity.key(&self.0.namespace)?;
        report.keyed(&key);
        // A window is for calls that are told apart by what they say, and would stand for a spent token's retention.
        let policy = if issued.is_some() { policy.window(Duration::ZERO) } else { policy };
        let mut terms = self.terms(&identity.scene, policy)?;
        if let Some(ttl) = issued {
            terms.of_token(ttl);
        }
        let comes = comes.map(|comes| self.comes(*comes, &identity, &key, frame)).transpose()?;
        if comes.is_some() {
            terms.on_store_error = OnStoreError::Fail;
        }
        let marked = frame.delivered.filter(|_| via.as_ref().is_some_and(Via::forgets_attempts) && !frame.is_inside());
        let via = via.map(|via| via.under(&mut terms)).transpose()?;
        if let Some(scope) = frame.runs(&key) {
            return Err(Rejection::Nested { scope: scope.into() });
        }
        // What runs may finish, with the runs inside it.
        let inside = frame.is_inside();
        if let Some(redelivery) = frame.redelivery.as_ref().filter(|_| !inside && identity.scene == Scene::Mq) {
            terms.fits(redelivery)?;
        }
        if self.is_draining() && !inside {
            return Err(self.draining());
        }
        let fingerprint = fingerprint?;
        // Zero stands for a token that was not kept: whoever draws it is not to be mistaken for nobody.
        let owner = OwnerToken(self.0.entropy.bits()?.max(1));
        let mut request = request(&identity, key, owner, fingerprint, &terms);
        if issued.is_some() {
            // Its issue is on record as an attempt.
            request.max_attempts = request.max_attempts.saturating_add(1);
        }
        Ok(Box::new(Prepared { request, terms, message, issued: issued.is_some(), inside, comes, via, marked }))
    }
}

impl Executor {
    fn comes(&self, comes: Comes, own: &Identity, key: &Key, frame: &Frame) -> Result<Box<After>, Rejection> {
        let of = |named: Named, what| named.key(own, &self.0.namespace, what);
        Ok(Box::new(match comes {
            Comes::After(named) => {
                let after = of(named, "after")?;
                in_its_turn(&after, key, frame)?;
                After::Call(after)
            }
            Comes::InLine(stream, number) => {
                if self.0.store.abilities().order.is_none() {
                    return Err(PolicyError::no_order(&self.0.store).into());
                }
                After::Line(InLine::new(&of(stream, "sequence")?, number))
            }
        }))
    }
}

/// A call cannot come after itself, nor inside a run of what it comes after: it would wait for ever.
fn in_its_turn(after: &Key, own: &Key, frame: &Frame) -> Result<(), Rejection> {
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
    terms: &Terms,
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
