//! The first step: ask the store for the key, and what follows from each of its answers.
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Executor;
use super::attempt::Attempt;
use super::cancel::OnDrop;
use super::drain::Phase;
use super::prepare::Prepared;
use super::report::Report;
use crate::backoff::delay;
use crate::clock::{later, pause};
use crate::context::Frame;
use crate::lease::Span;
use crate::policy::{OnInFlight, Terms};
use crate::{Claim, Event, Grant, InFlight, Key, Lease, OnStoreError, Rejection, StoreError, StoreErrorKind};

/// What a claim that was not won leads to.
pub(super) enum Turned {
    Replay(Option<Arc<[u8]>>),
    Away(Rejection),
    /// Consumed, and not to be replayed.
    Duplicate(Box<Prepared>),
    /// The store is down, and the policy says to run all the same.
    Unprotected(StoreError, Box<Terms>),
}

impl<T: Into<Rejection>> From<T> for Turned {
    fn from(rejection: T) -> Self {
        Self::Away(rejection.into())
    }
}

/// A store's answer to a claim.
pub(super) struct Asked {
    /// No later than the grant's lease began, if one was granted.
    pub(super) sent: Instant,
    /// Whether a copy of the claim was sent whose fate is unknown.
    pub(super) unheard: bool,
    pub(super) answer: Result<Claim, StoreError>,
}

/// Re-asked this often at the least where the store does not answer; by the same token, so no second grant can
/// come of it.
const ASKED_AGAIN: [Duration; 3] = [Duration::from_millis(10), Duration::from_millis(20), Duration::from_millis(40)];

impl Executor {
    pub(super) async fn claim<'e>(
        &'e self,
        prepared: Box<Prepared>,
        frame: &Frame,
        report: &mut Report<'e>,
    ) -> Result<Attempt<'e>, Turned> {
        let mut began = report.began();
        if prepared.issued {
            Box::pin(self.issued(&prepared, report)).await?;
            began = self.0.clock.now();
        }
        if prepared.comes.is_some() {
            began = Box::pin(self.its_turn(&prepared, report, true)).await?;
        }
        // On guard before the claim is sent: a drop while the answer is under way takes it back.
        let guard = OnDrop::new(self, &prepared);
        let mut unheard = None;
        // Nothing but pure steps lies between `began` and this.
        let mut asked = self.ask(&prepared, report, &mut unheard, None, began).await;
        if let (OnInFlight::Wait(most), Ok(Claim::InFlight(in_flight))) = (prepared.terms.on_in_flight, &asked.answer) {
            let (in_flight, deadline) = (*in_flight, later(self.0.clock.now(), most));
            asked = Box::pin(self.wait(&prepared, report, &mut unheard, (asked, in_flight), deadline)).await;
        }
        self.granted(prepared, guard, asked, frame, report)
    }

    /// Looks whether the token is known before it is claimed: a guess must leave no record behind. One that runs out
    /// between the two was good when it came.
    pub(super) async fn issued(&self, prepared: &Prepared, report: &Report<'_>) -> Result<(), Turned> {
        let until = self.0.clock.now() + prepared.terms.lease / 3;
        let found = self.before(until, self.0.store.peek(&prepared.request.key)).await;
        match found.unwrap_or_else(|| Err(unanswered())) {
            Ok(Some(_)) => Ok(()),
            Ok(None) => Err(Rejection::UnknownToken.into()),
            Err(error) => {
                report.event(&Event::StoreFailed { step: "peek", error: &error });
                Err(self.refused(error, prepared))
            }
        }
    }

    /// What a duplicate is told that gets no result: with the rest of the window, where the store can tell it.
    pub(super) async fn duplicate(&self, prepared: &Prepared) -> Rejection {
        let window = prepared.terms.window;
        let mut rest = window;
        if let Some(inspect) = self.0.store.abilities().inspect.filter(|_| !window.is_zero()) {
            let until = self.0.clock.now() + prepared.terms.lease / 3;
            if let Some(Ok(Some(seen))) = self.before(until, inspect.inspect(&prepared.request.key)).await {
                rest = (seen.record.expires_at - seen.now).min(window);
            }
        }
        prepared.duplicate(rest)
    }

    /// What follows from the store's answer.
    pub(super) fn granted<'e>(
        &'e self,
        prepared: Box<Prepared>,
        mut guard: OnDrop<'e>,
        asked: Asked,
        frame: &Frame,
        report: &mut Report<'e>,
    ) -> Result<Attempt<'e>, Turned> {
        match asked.answer {
            Ok(Claim::Acquired(mut grant)) => {
                // The first attempt of a token was its issue.
                grant.attempt -= u32::from(prepared.issued && grant.attempt > 1);
                grant.attempt = grant.attempt.max(prepared.marked.unwrap_or_default());
                guard.granted(grant.fencing);
                // An observer is told, and may take its time: the clock is read when it has.
                report.granted(&grant);
                let now = self.0.clock.now();
                let lease = self.lease(&prepared, grant, frame, report, (asked.sent, now));
                Ok(Attempt::new(self, prepared, lease, guard, now))
            }
            answer => {
                // A copy that may yet be applied is taken back as the guard goes; else there is nothing to free.
                if !asked.unheard {
                    guard.disarm();
                }
                Err(match answer {
                    Ok(Claim::Consumed(_)) if prepared.refuses_duplicates() => Turned::Duplicate(prepared),
                    Ok(other) => self.turned(other, &prepared),
                    Err(error) => self.refused(error, &prepared),
                })
            }
        }
    }

    /// Makes the grant a lease: only here it is known when the claim was sent.
    fn lease(
        &self,
        prepared: &Prepared,
        grant: Grant,
        frame: &Frame,
        report: &Report<'_>,
        trip: (Instant, Instant),
    ) -> Lease {
        let held = prepared.held(Some(grant.fencing));
        let terms = &prepared.terms;
        let keep = terms.max_run.saturating_add(terms.lease).saturating_add(terms.memory);
        let renews = prepared.via.as_ref().is_none_or(|own| own.renews());
        let span = Span {
            heartbeat: terms.heartbeat(),
            max_run: terms.max_run,
            keep,
            renews,
            transaction: prepared.via.is_some(),
        };
        let with = (self.0.clock.clone(), self.0.store.clone());
        Lease::new(held, grant, report.names(), frame.lease.clone(), with, trip, &span)
    }

    /// Asks, and asks again by the same token where the answer may have got lost.
    ///
    /// `unheard` is when the first copy of this claim went out whose fate is unknown; it is remembered over all
    /// askings. That copy may be the one that was granted, whichever is answered, and then its lease began no
    /// later: a grant counts from there.
    pub(super) async fn ask(
        &self,
        prepared: &Prepared,
        report: &Report<'_>,
        unheard: &mut Option<Instant>,
        deadline: Option<Instant>,
        began: Instant,
    ) -> Asked {
        match self.ask_once(prepared, deadline, began).await {
            answer @ (Err(_) | Ok(Claim::InFlight(InFlight::Busy))) => {
                Box::pin(self.ask_again(prepared, report, unheard, deadline, (began, answer))).await
            }
            answer => Asked { sent: unheard.unwrap_or(began), unheard: unheard.is_some(), answer },
        }
    }

    async fn ask_once(
        &self,
        prepared: &Prepared,
        deadline: Option<Instant>,
        sent: Instant,
    ) -> Result<Claim, StoreError> {
        let until = sent + prepared.terms.lease / 3;
        let until = deadline.map_or(until, |deadline| deadline.min(until));
        let answer = self.before(until, prepared.store(self).claim(&prepared.request)).await;
        answer.unwrap_or_else(|| Err(unanswered()))
    }

    /// What follows from a first answer that is none.
    async fn ask_again(
        &self,
        prepared: &Prepared,
        report: &Report<'_>,
        unheard: &mut Option<Instant>,
        deadline: Option<Instant>,
        (began, mut answer): (Instant, Result<Claim, StoreError>),
    ) -> Asked {
        let (mut sent, mut pauses) = (began, ASKED_AGAIN.into_iter());
        let patience = prepared.terms.lease / 3;
        loop {
            let again = match &answer {
                Err(error) => {
                    report.event(&Event::StoreFailed { step: "claim", error });
                    if error.kind() == StoreErrorKind::Ambiguous {
                        unheard.get_or_insert(sent);
                    }
                    error.is_worth_a_retry()
                }
                // It may have met its own first copy, or a claim that is over in a moment.
                Ok(Claim::InFlight(InFlight::Busy)) => true,
                Ok(_) => false,
            };
            // Past two thirds of the lease a grant would be of no use.
            let now = self.0.clock.now();
            let late = now.saturating_duration_since(began) >= patience * 2 || deadline.is_some_and(|end| end <= now);
            match pauses.next() {
                Some(rest) if again && !late => pause(&*self.0.clock, rest).await,
                _ => return Asked { sent: unheard.unwrap_or(sent), unheard: unheard.is_some(), answer },
            }
            sent = self.0.clock.now();
            answer = self.ask_once(prepared, deadline, sent).await;
        }
    }

    /// Waits for the run in flight to end, and asks again, until `deadline`.
    async fn wait(
        &self,
        prepared: &Prepared,
        report: &Report<'_>,
        unheard: &mut Option<Instant>,
        (mut asked, mut in_flight): (Asked, InFlight),
        deadline: Instant,
    ) -> Asked {
        // Too many wait already: this one is told to come back.
        let Ok(_place) = self.0.places.try_acquire() else { return asked };
        // A run inside another may go on for as long as that one may.
        let until = if prepared.inside { Phase::Closed } else { Phase::Draining };
        loop {
            // Watching begins before the store is asked again: nothing can be settled unseen in between.
            let settled = self.watch(&prepared.request.key);
            asked = self.ask(prepared, report, unheard, Some(deadline), self.0.clock.now()).await;
            let over = self.0.clock.now() >= deadline || self.0.gate.has_reached(until);
            match &asked.answer {
                Ok(Claim::InFlight(still)) => in_flight = *still,
                // No answer in the time that was left: it was in flight when last heard of.
                Err(error) if over && error.is_worth_a_retry() => asked.answer = Ok(Claim::InFlight(in_flight)),
                _ => return asked,
            }
            if over {
                return asked;
            }
            self.settled(settled, in_flight, deadline, until).await;
        }
    }

    pub(super) fn turned(&self, claim: Claim, prepared: &Prepared) -> Turned {
        Turned::Away(match claim {
            Claim::Consumed(consumed) => return Turned::Replay(consumed.value),
            Claim::InFlight(_) if self.is_draining() && !prepared.inside => self.draining(),
            Claim::InFlight(in_flight) => {
                prepared.in_flight(self.come_back_in(&prepared.request.key, in_flight, &prepared.terms))
            }
            Claim::Delayed { rest } => Rejection::Delayed { retry_after: rest },
            Claim::Failed { error } => Rejection::Failed { error },
            Claim::Dead(dead) => Rejection::Dead { attempts: dead.attempts, fencing: dead.fencing, error: dead.error },
            Claim::Mismatch => Rejection::Mismatch,
            // The caller took these; a grant nobody runs is left to its lease.
            Claim::Acquired(_) => Rejection::LeaseLost,
        })
    }

    /// The hint for a duplicate in flight: grows with each deferral, but a short handler must not cost its
    /// duplicate the rest of a long lease, and no duplicate comes back later than the lease's end.
    fn come_back_in(&self, key: &Key, in_flight: InFlight, terms: &Terms) -> Duration {
        let now = self.0.clock.now();
        let rest = match in_flight {
            InFlight::Leased { rest } => rest.max(Duration::from_millis(1)),
            InFlight::Busy => terms.in_flight_delay,
        };
        let times = self.0.deferrals.count(key, rest, now);
        // Without randomness there is no jitter; the claim before it had some.
        let bits = self.0.entropy.bits().unwrap_or_default();
        delay(terms.in_flight_delay, terms.in_flight_delay_max, times, terms.jitter, bits).min(rest)
    }

    pub(super) fn draining(&self) -> Rejection {
        Rejection::Draining { retry_after: Duration::from_secs(1) }
    }

    pub(super) fn refused(&self, error: StoreError, prepared: &Prepared) -> Turned {
        // Only what says that the store is down: a record that cannot be read may well be a consumed one.
        match prepared.terms.on_store_error {
            _ if self.is_draining() && !prepared.inside => self.draining().into(),
            OnStoreError::RunUnprotected if error.is_worth_a_retry() => {
                Turned::Unprotected(error, Box::new(prepared.terms))
            }
            OnStoreError::RunUnprotected | OnStoreError::Fail => error.into(),
        }
    }
}

pub(super) fn unanswered() -> StoreError {
    StoreError::new(StoreErrorKind::Ambiguous).because("no answer within a third of the lease")
}
