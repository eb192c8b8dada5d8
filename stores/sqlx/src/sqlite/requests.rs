//! A request of one key: what the protocol decides on it, and how it is sent where it comes alone.
use std::sync::atomic::Ordering;
use std::time::Duration;

use idempotent_core::protocol::{self, Write};
use idempotent_core::{
    Claim, ClaimHandle, ClaimRequest, Completion, FencingToken, Key, OnExpiry, Record, Release, ReleaseKind, Settled,
    State, StateKind, StoreError, Timestamp,
};

use super::claim_row::ClaimRow;
use super::connection::{ConnectionGuard, Query, query};
use super::error;
use super::record_access::{RecordAccess, held_query, id, owner};
use crate::answer;
use crate::lost_result::LostResult;
use crate::row::{self, micros, signed};

/// After this number of consecutive keys of a kind, the next key is expected to be of the same kind.
const MANY: i32 = 8;

/// A request of one call of the store.
pub(super) trait Request: Clone + Send + Sync + 'static {
    /// The answer to the caller.
    type Answer: Send + Sync + 'static;
    /// True if the answer may need no write.
    const MAY_BE_A_DUPLICATE: bool = false;
    /// True if a full disk may have room for the request without its value.
    const HAS_VALUE: bool = false;

    fn key(&self) -> &Key;

    /// Returns the decision of the protocol.
    fn decide(&self, found: Option<&Record>, now: Timestamp) -> (Self::Answer, Write);

    /// Sends it in a statement of its own.
    fn alone(
        &self,
        access: &RecordAccess,
        turn: &mut ConnectionGuard<'_>,
    ) -> impl Future<Output = Result<Self::Answer, StoreError>> + Send;
}

impl Request for ClaimRequest {
    type Answer = Claim;
    const MAY_BE_A_DUPLICATE: bool = true;

    fn key(&self) -> &Key {
        &self.key
    }

    fn decide(&self, found: Option<&Record>, now: Timestamp) -> (Claim, Write) {
        protocol::claim(found, self, now)
    }

    async fn alone(&self, access: &RecordAccess, turn: &mut ConnectionGuard<'_>) -> Result<Claim, StoreError> {
        if let Err(full) = access.store_lost_result(turn).await {
            let found = access.look(turn, &self.key).await?;
            return found.and_then(|(record, now)| answer::claim(&record, false, self, now)).ok_or(full);
        }
        // The next key is taken to be like the last ones: a new one is spared the look, a duplicate the write lock and
        // most of what a claim carries.
        let lately = access.lately.load(Ordering::Relaxed);
        let mut look_first = lately < MANY;
        let answered = |answer| {
            let lately = match answer {
                Claim::Acquired(_) => lately.max(0).saturating_add(1),
                Claim::Consumed(_) => lately.min(0).saturating_sub(1),
                _ => 0,
            };
            access.lately.store(lately, Ordering::Relaxed);
            Ok(answer)
        };
        let clock = || access.clock.as_ref().map(|clock| signed(clock.wall()));
        if lately <= -MANY {
            let known = query(&access.sql.claim_known).bind(id(&self.key)).bind(owner(self.owner.0)).bind(clock());
            if let Some(row) = turn.first(known).await?
                && let ClaimRow::Answered(answer) =
                    ClaimRow::read(&row, self).map_err(|error| access.place.error(error))?
            {
                return answered(answer);
            }
        }
        for _ in 0..answer::TRIES {
            let sql = if look_first { &access.sql.claim } else { &access.sql.claim_new };
            let claim = query(sql)
                .bind(id(&self.key))
                .bind(owner(self.owner.0))
                .bind(clock())
                .bind(micros(self.lease))
                .bind(self.fingerprint.map(|fingerprint| Box::<[u8]>::from(fingerprint.to_bytes())))
                .bind(i64::from(self.max_attempts))
                .bind(self.on_expiry == OnExpiry::Park)
                .bind(micros(self.retention))
                .bind(self.key.name().to_owned())
                .bind(self.display.clone());
            let row = match turn.first(claim).await {
                // Another process has the lock, and a duplicate needs none.
                Err(error) if !look_first && error::is_lock(&error) => {
                    let found = access.look(turn, &self.key).await?;
                    let kept = found.and_then(|(record, now)| answer::claim(&record, false, self, now));
                    return kept.map_or(Err(error), answered);
                }
                row => row?,
            };
            look_first = true;
            let Some(row) = row else { continue };
            let wrote = match ClaimRow::read(&row, self).map_err(|error| access.place.error(error))? {
                ClaimRow::Answered(answer) => return answered(answer),
                ClaimRow::Look { wrote } => wrote,
            };
            let Some((record, now)) = access.look(turn, &self.key).await? else { continue };
            if let Some(answer) = answer::claim(&record, wrote, self, now) {
                return answered(answer);
            }
        }
        Err(answer::outrun())
    }
}

/// A renewal.
impl Request for (ClaimHandle, Duration) {
    type Answer = Settled;

    fn key(&self) -> &Key {
        &self.0.key
    }

    fn decide(&self, found: Option<&Record>, now: Timestamp) -> (Settled, Write) {
        protocol::renew(found, &self.0, self.1, now)
    }

    async fn alone(&self, access: &RecordAccess, turn: &mut ConnectionGuard<'_>) -> Result<Settled, StoreError> {
        let (held, lease) = self;
        access.settle(turn, self, || held_query(&access.sql.renew, held).bind(micros(*lease))).await
    }
}

impl Request for (ClaimHandle, Completion) {
    type Answer = Settled;
    const HAS_VALUE: bool = true;

    fn key(&self) -> &Key {
        &self.0.key
    }

    fn decide(&self, found: Option<&Record>, now: Timestamp) -> (Settled, Write) {
        protocol::complete(found, &self.0, &self.1, now)
    }

    async fn alone(&self, access: &RecordAccess, turn: &mut ConnectionGuard<'_>) -> Result<Settled, StoreError> {
        match access.complete(turn, self).await {
            Err(error) if error::is_full(&error) => {
                let bare = LostResult::without_result(&self.1).ok_or(error)?;
                let settled = access.complete(turn, &(self.0.clone(), bare)).await;
                access.lost.note(&self.0, &self.1, &settled);
                settled
            }
            settled => settled,
        }
    }
}

impl Request for (ClaimHandle, Release) {
    type Answer = Settled;

    fn key(&self) -> &Key {
        &self.0.key
    }

    /// Decides the write. A deleted record stays as an expired tombstone, as with the statement: it keeps the fencing
    /// number until the purge.
    fn decide(&self, found: Option<&Record>, now: Timestamp) -> (Settled, Write) {
        let (held, release) = self;
        match (protocol::release(found, held, release, now), found) {
            ((settled, Write::Delete), Some(record)) => {
                let error = release.error.clone();
                let state = State::Vacant { not_before: now, error, taken_over: None };
                let gone = Record { state, expires_at: now, updated_at: now, display: None, ..record.clone() };
                (settled, Write::Put(gone))
            }
            (decision, _) => decision,
        }
    }

    async fn alone(&self, access: &RecordAccess, turn: &mut ConnectionGuard<'_>) -> Result<Settled, StoreError> {
        let (held, release) = self;
        let sql = &access.sql;
        let (delay, retention) = (micros(release.delay), micros(release.retention));
        let error = || release.error.clone();
        let end = |state| held_query(&sql.end, held).bind(row::code(state)).bind(retention).bind(error());
        let vacate = |off: i64| held_query(&sql.vacate, held).bind(delay).bind(retention).bind(error()).bind(off);
        let write = || match release.kind {
            ReleaseKind::Delete => held_query(&sql.delete, held).bind(error()),
            ReleaseKind::Vacate => vacate(0),
            ReleaseKind::Refund => vacate(1),
            ReleaseKind::MarkFailed => end(StateKind::Failed),
            ReleaseKind::MarkDead => end(StateKind::Dead),
        };
        access.settle(turn, self, write).await
    }
}

/// An operator's.
#[derive(Clone)]
pub(super) struct Forget {
    pub(super) key: Key,
    pub(super) expected: FencingToken,
    pub(super) force: bool,
    pub(super) retention: Duration,
}

impl Request for Forget {
    type Answer = Settled;

    fn key(&self) -> &Key {
        &self.key
    }

    fn decide(&self, found: Option<&Record>, now: Timestamp) -> (Settled, Write) {
        protocol::forget(found, self.expected, self.force, self.retention, now)
    }

    async fn alone(&self, access: &RecordAccess, turn: &mut ConnectionGuard<'_>) -> Result<Settled, StoreError> {
        let write = || {
            // A number that no column holds is no grant's.
            let fencing = i64::try_from(self.expected.0).unwrap_or(-1);
            let query = query(&access.sql.forget).bind(id(&self.key)).bind(fencing);
            query.bind(self.force).bind(micros(self.retention))
        };
        access.settle(turn, self, write).await
    }
}

impl RecordAccess {
    /// Stores the lost result, if there is one.
    ///
    /// # Errors
    /// There is still no room for it.
    async fn store_lost_result(&self, turn: &mut ConnectionGuard<'_>) -> Result<(), StoreError> {
        let Some((held, completion)) = self.lost.largest() else { return Ok(()) };
        match turn.execute(held_query(&self.sql.store_value, &held).bind(completion.value)).await {
            Err(error) if error::is_full(&error) => Err(self.lost.refusal(&self.place.file)),
            Err(error) => Err(error),
            Ok(_) => {
                self.lost.forget(&held);
                Ok(())
            }
        }
    }

    pub(super) async fn complete(
        &self,
        turn: &mut ConnectionGuard<'_>,
        ask: &(ClaimHandle, Completion),
    ) -> Result<Settled, StoreError> {
        let (held, completion) = ask;
        let write = || {
            let query = held_query(&self.sql.complete, held).bind(completion.value.clone());
            query.bind(micros(completion.retain))
        };
        self.settle(turn, ask, write).await
    }

    /// Sends a guarded write. Where it wrote nothing, the protocol decides what that means.
    async fn settle<A: Request<Answer = Settled>>(
        &self,
        turn: &mut ConnectionGuard<'_>,
        ask: &A,
        write: impl Fn() -> Query + Send,
    ) -> Result<Settled, StoreError> {
        for _ in 0..answer::TRIES {
            if turn.execute(self.timed(write())).await? > 0 {
                return Ok(Settled::Done);
            }
            let Some((record, now)) = self.look(turn, ask.key()).await? else {
                return Ok(Settled::Lost { now: StateKind::Absent });
            };
            if let Some(settled) = answer::kept(ask.decide(Some(&record), now)) {
                return Ok(settled);
            }
        }
        Err(answer::outrun())
    }
}
