//! Whose turn it is: a call that comes after another looks whether that one is consumed before it claims its own key.
//!
//! Nothing is held while it waits, so a crash leaves nothing behind: wherever it happens, the broker delivers again and the
//! next look decides anew. What a call has waited is counted from a note in the store, a record of its own beside the
//! call's ([`Presence`]), so that it is the same for every process and survives all of them:
//! - killed before the note: the next delivery writes it, and its time begins there;
//! - killed after it: the next one finds it;
//! - killed between the predecessor's flip and the claim: the predecessor stays consumed;
//! - killed while a call is buried: its key is free once the lease ends, and the next delivery looks and buries again.
use std::time::{Duration, Instant};

use super::Executor;
use super::cancel::OnDrop;
use super::claim::Turned;
use super::drain::Phase;
use super::prepare::{After, Prepared};
use super::presence::{Presence, noted_again, waited};
use super::report::Report;
use super::settle::release;
use crate::backoff::delay;
use crate::clock::later;
use crate::order::{Turn, halted, turn};
use crate::policy::OnInFlight;
use crate::{
    BrokenOrder, Claim, Event, InFlight, Key, Micros, Record, Rejection, Settled, State, StateKind, StoreError, Verdict,
};

/// The shortest hint, and the shortest wait in place.
const AT_LEAST: Duration = Duration::from_millis(1);

/// What was found, and how long the call has waited where that counts.
struct Seen {
    turn: Turn,
    waited: Duration,
}

impl Executor {
    /// Ends well once it is the call's turn. From that moment on its lease counts.
    pub(super) async fn its_turn(
        &self,
        prepared: &Prepared,
        report: &Report<'_>,
        waits: bool,
    ) -> Result<Instant, Turned> {
        match prepared.comes.as_deref() {
            Some(After::Call(after)) => self.in_turn(prepared, after, report, waits).await?,
            Some(After::Line(line)) => return self.in_line(prepared, line, report, waits).await,
            None => {}
        }
        Ok(self.0.clock.now())
    }

    /// Ends well once it is the call's turn, or where its key is settled and the claim has an answer. `waits`: in place,
    /// where the policy says so.
    async fn in_turn(&self, prepared: &Prepared, after: &Key, report: &Report<'_>, waits: bool) -> Result<(), Turned> {
        let most = match prepared.terms.on_in_flight {
            OnInFlight::Wait(most) if waits => most,
            _ => Duration::ZERO,
        };
        let deadline = later(self.0.clock.now(), most);
        // Too many wait already: this one is told to come back.
        let place = (!most.is_zero()).then(|| self.0.places.try_acquire().ok()).flatten();
        let until = if prepared.inside { Phase::Closed } else { Phase::Draining };
        loop {
            // Watching begins before the store is asked: nothing can be settled unseen in between.
            let settled = place.as_ref().map(|_| self.watch(after));
            let looked = self.look(prepared, after).await.map_err(|error| {
                report.event(&Event::StoreFailed { step: "peek", error: &error });
                self.refused(error, prepared)
            });
            let seen = looked?;
            let over = self.0.clock.now() >= deadline || self.0.gate.has_reached(until);
            match (seen.turn, settled) {
                (Turn::Wait | Turn::Hold(_), Some(settled)) if !over => {
                    let rest = InFlight::Leased { rest: deadline.saturating_duration_since(self.0.clock.now()) };
                    self.settled(settled, rest, self.noted_until(prepared, deadline), until).await;
                }
                _ => return self.act(prepared, report, &seen).await,
            }
        }
    }

    /// Until when a call may wait in place without a look: those behind it take one that is not noted for missing.
    pub(super) fn noted_until(&self, prepared: &Prepared, deadline: Instant) -> Instant {
        let again = noted_again(prepared.terms.on_broken_order.patience()).max(AT_LEAST);
        deadline.min(later(self.0.clock.now(), again))
    }

    async fn act(&self, prepared: &Prepared, report: &Report<'_>, seen: &Seen) -> Result<(), Turned> {
        let broken = |why, skipped| report.event(&Event::OrderBroken { why, skipped });
        match seen.turn {
            Turn::Run => Ok(()),
            Turn::Skip(why) => {
                broken(why, true);
                Ok(())
            }
            _ if self.is_draining() && !prepared.inside => Err(self.draining().into()),
            Turn::Wait => Err(Rejection::Waiting { retry_after: self.look_again_in(prepared, seen.waited) }.into()),
            Turn::Hold(why) => {
                broken(why, false);
                Err(Rejection::Held { retry_after: self.look_again_in(prepared, seen.waited), why }.into())
            }
            Turn::Halt(why) => {
                broken(why, false);
                Err(self.halt(prepared, why).await.unwrap_or_else(|error| self.refused(error, prepared)))
            }
        }
    }

    async fn look(&self, prepared: &Prepared, after: &Key) -> Result<Seen, StoreError> {
        let policy = prepared.terms.on_broken_order;
        let at_once = Seen { turn: Turn::Run, waited: Duration::ZERO };
        let (found, now) = self.seen(prepared, after).await?;
        let unseen = found.is_none();
        let (state, since) = match found {
            // A run whose lease is over was killed. Nobody runs it, and perhaps nobody will: it is missing since then.
            Some(Record { state: State::Consuming { until, .. }, .. }) if until <= now => (StateKind::Absent, until),
            Some(record) => (record.state.kind(), record.updated_at),
            None => (StateKind::Absent, Micros(0)),
        };
        if state == StateKind::Consumed {
            return Ok(at_once);
        }
        // A duplicate of what is settled gets its answer, whatever has become of the predecessor. One in flight may be a
        // call that is being buried, which is no sign that its turn had come.
        let own = self.seen(prepared, &prepared.request.key).await?.0.map(|record| record.state.kind());
        if matches!(own, Some(StateKind::Consumed | StateKind::Failed | StateKind::Dead)) {
            return Ok(at_once);
        }
        let noted = self.presence(prepared, &prepared.request.key).await?;
        let (waited, anew) = match state {
            StateKind::Absent => self.missed(prepared, after, noted, since, unseen).await?,
            StateKind::Failed | StateKind::Dead => (waited(noted, since), false),
            _ => (Duration::ZERO, false),
        };
        let turn = turn(state, waited, policy);
        if matches!(turn, Turn::Wait | Turn::Hold(_)) {
            self.note(prepared, noted, anew).await?;
        }
        Ok(Seen { turn, waited })
    }

    /// For how long the call has waited for one that nobody runs, and whether that is to be counted anew.
    async fn missed(
        &self,
        prepared: &Prepared,
        after: &Key,
        noted: Option<Presence>,
        killed: Micros,
        unseen: bool,
    ) -> Result<(Duration, bool), StoreError> {
        let patience = prepared.terms.on_broken_order.patience();
        let so_far = waited(noted, killed);
        let Some(own) = noted.filter(|_| so_far >= patience) else { return Ok((so_far, false)) };
        // One that waits itself is not missing, as long as it is delivered.
        let sign = match unseen {
            true => self.presence(prepared, after).await?.map(|there| there.until(patience)),
            false => Some(killed),
        };
        Ok(sign.map_or((so_far, false), |sign| own.missed(sign, patience)))
    }

    /// A record with the store's own time, as far as it tells.
    pub(super) async fn seen(&self, prepared: &Prepared, key: &Key) -> Result<(Option<Record>, Micros), StoreError> {
        let asked = async {
            match self.0.store.abilities().inspect {
                Some(inspect) => match inspect.inspect(key).await? {
                    Some(seen) => Ok((Some(seen.record), seen.now)),
                    None => Ok((None, self.0.clock.wall())),
                },
                None => Ok((self.0.store.peek(key).await?, self.0.clock.wall())),
            }
        };
        self.in_time(prepared.terms.lease / 3, asked).await
    }

    /// Buries the call without a run, so that those after it are told the same. By the executor's own store: the
    /// transaction of a run that never begins could only be rolled back, and the record with it.
    pub(super) async fn halt(&self, prepared: &Prepared, why: BrokenOrder) -> Result<Turned, StoreError> {
        let patience = prepared.terms.lease / 3;
        let mut guard = OnDrop::new(self, prepared).past_transaction();
        let grant = match self.in_time(patience, self.0.store.claim(&prepared.request)).await? {
            Claim::Acquired(mut grant) => {
                // The first attempt of a token was its issue.
                grant.attempt -= u32::from(prepared.issued && grant.attempt > 1);
                grant
            }
            other => {
                guard.disarm();
                return Ok(self.turned(other, prepared));
            }
        };
        guard.granted(grant.fencing);
        let mut bury = release(Verdict::Bury, prepared.terms.memory, "");
        bury.error = halted(why, &prepared.waits_for(), grant.attempt).into();
        let held = prepared.held(Some(grant.fencing));
        let settled = self.in_time(patience, self.0.store.release(&held, &bury)).await?;
        guard.disarm();
        self.0.waiters.wake(prepared.request.key.hash());
        self.0.deferrals.forget(&prepared.request.key);
        Ok(Turned::Away(match settled {
            Settled::Done => Rejection::Dead { attempts: grant.attempt, fencing: grant.fencing, error: bury.error },
            Settled::Lost { .. } => Rejection::LeaseLost,
        }))
    }

    /// Grows with each time the call is put off, and is no later than the end of its patience, nor than half of it.
    pub(super) fn look_again_in(&self, prepared: &Prepared, waited: Duration) -> Duration {
        let (terms, key) = (&prepared.terms, &prepared.request.key);
        let remembered = terms.in_flight_delay_max.saturating_mul(4);
        let times = self.0.deferrals.count(key, remembered, self.0.clock.now());
        let bits = self.0.entropy.bits().unwrap_or_default();
        let grown = delay(terms.in_flight_delay, terms.in_flight_delay_max, times, terms.jitter, bits);
        let patience = terms.on_broken_order.patience();
        // Who is not delivered for so long counts as missing.
        let grown = grown.min((patience / 2).max(AT_LEAST));
        match patience.saturating_sub(waited) {
            Duration::ZERO => grown,
            rest => grown.min(rest.max(AT_LEAST)),
        }
    }
}
