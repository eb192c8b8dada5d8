//! Requests for one key: claim, renew, complete, release, forget and inspect.
use std::time::Duration;

use idempotent_core::protocol::{self, Write, live};
use idempotent_core::{
    Claim, ClaimHandle, ClaimRequest, Completion, FencingToken, InFlight, InspectedRecord, Key, Record, Release,
    ReleaseKind, Settled, StateKind, StoreError, Timestamp,
};

use tokio::time::Instant;

use super::dialect::{Dialect, WriteResult};
use super::driver::{Contention, Driver};
use super::error::is_full;
use super::runner::{StatementResult, settled};
use super::statement::{BoundStatement, Statement};
use super::store::{FoundRecord, ServerStore};
use super::target::StatementTarget;
use super::value::{Value, id, owner};
use crate::answer;
use crate::lost_result::LostResult;
use crate::row::{self, Parts, VERSION, micros, signed};

/// The number of retries of a claim during a concurrent claim of the same key, before it answers that the key is busy.
const LOOKS: usize = 3;
/// The time after which a claim that has waited for a lock answers that the key is busy. MySQL waits for a second or more.
const WAITED: Duration = Duration::from_millis(500);
pub(super) const BETWEEN: Duration = Duration::from_millis(2);

impl<D: Dialect> ServerStore<D> {
    pub(crate) async fn claim(&self, request: &ClaimRequest) -> Result<Claim, StoreError> {
        if let Err(full) = self.store_lost_result().await {
            return self.existing(request).await?.ok_or(full);
        }
        let mut look_first = self.recent_keys.expects_a_record(&request.key);
        let (mut busy, mut contended, begun) = (0, None, Instant::now());
        for tries in (0..).take(answer::TRIES) {
            let put = match self.find_or_claim(request, std::mem::take(&mut look_first)).await? {
                StatementResult::Done(Some(seen)) => {
                    let (answer, write) = decide(&seen, request);
                    match self.write(&request.key, &seen.record, write).await? {
                        WriteResult::Done => {
                            self.recent_keys.saw(&request.key, &answer);
                            return Ok(answer);
                        }
                        put => put,
                    }
                }
                StatementResult::Done(None) => WriteResult::Busy,
                StatementResult::Contended(how, error) => {
                    contended = Some(error);
                    // The winner of a deadlock has a record, which a look finds without another deadlock.
                    look_first = matches!(how, Contention::Raced);
                    how.into()
                }
            };
            if matches!(put, WriteResult::Busy) {
                busy += 1;
                if busy > LOOKS || begun.elapsed() >= WAITED {
                    return Ok(Claim::InFlight(InFlight::Busy));
                }
                tokio::time::sleep(BETWEEN).await;
            } else {
                // Above READ COMMITTED, many claims of one new key end in deadlocks until some of them pause.
                tokio::time::sleep(BETWEEN * tries).await;
            }
        }
        Err(contended.unwrap_or_else(answer::outrun))
    }

    /// Returns the answer of the existing record, if the answer needs no write.
    pub(super) async fn existing(&self, request: &ClaimRequest) -> Result<Option<Claim>, StoreError> {
        let found = self.look(&request.key).await?;
        Ok(found.and_then(|seen| answer::kept(protocol::claim(Some(&seen.record), request, seen.now))))
    }

    /// Stores the lost result, if there is one.
    ///
    /// # Errors
    /// There is still no room for it.
    pub(super) async fn store_lost_result(&self) -> Result<(), StoreError> {
        let Some((held, completion)) = self.lost.largest() else { return Ok(()) };
        let store = by_owner(&self.texts.store_value, &held).bind(completion.value.as_deref().map(<[u8]>::to_vec));
        match self.runner.execute(store).await.and_then(settled) {
            Err(error) if is_full::<D>(&error) => Err(self.lost.refusal(&self.runner.place.database)),
            Err(error) => Err(error),
            Ok(_) => {
                self.lost.forget(&held);
                Ok(())
            }
        }
    }

    /// Returns the existing record, or the grant of a key without a record.
    async fn find_or_claim(
        &self,
        request: &ClaimRequest,
        look_first: bool,
    ) -> Result<StatementResult<Option<FoundRecord>>, StoreError> {
        if look_first {
            match StatementTarget::pool(self).look(&request.key).await? {
                StatementResult::Done(None) => {}
                seen => return Ok(seen),
            }
        }
        let claim = self.timed(BoundStatement::new(&self.texts.claim).bind_all(self.claiming(request)));
        D::claim(&mut StatementTarget::pool(self), claim, &request.key).await
    }

    /// Returns the parameters of a claim.
    pub(super) fn claiming(&self, request: &ClaimRequest) -> Vec<Value> {
        vec![
            id(&request.key).into(),
            owner(request.owner).into(),
            micros(request.lease).into(),
            request.fingerprint.map(|fingerprint| fingerprint.to_bytes().to_vec()).into(),
            micros(request.retention).into(),
            request.key.name().into(),
            request.display.as_deref().into(),
            self.dialect.lock(&request.key).into(),
        ]
    }

    pub(crate) async fn renew(&self, held: &ClaimHandle, lease: Duration) -> Result<Settled, StoreError> {
        let write = || by_owner(&self.texts.renew, held).bind(micros(lease));
        self.settle(&held.key, write, |found, now| protocol::renew(found, held, lease, now)).await
    }

    pub(crate) async fn complete(&self, held: &ClaimHandle, completion: &Completion) -> Result<Settled, StoreError> {
        self.fits(completion)?;
        match self.complete_whole(held, completion).await {
            Err(error) if is_full::<D>(&error) => {
                let bare = LostResult::without_result(completion).ok_or(error)?;
                let settled = self.complete_whole(held, &bare).await;
                self.lost.note(held, completion, &settled);
                settled
            }
            settled => settled,
        }
    }

    async fn complete_whole(&self, held: &ClaimHandle, completion: &Completion) -> Result<Settled, StoreError> {
        let write = || {
            let ask = by_owner(&self.texts.complete, held).bind(completion.value.as_deref().map(<[u8]>::to_vec));
            ask.bind(micros(completion.retain))
        };
        self.settle(&held.key, write, |found, now| protocol::complete(found, held, completion, now)).await
    }

    /// Rejects a value for which the server would close the connection.
    pub(super) fn fits(&self, completion: &Completion) -> Result<(), StoreError> {
        let (bytes, most) = (completion.value.as_deref().map_or(0, <[u8]>::len), self.dialect.most());
        if bytes > most { Err(self.runner.place.too_large(bytes, most)) } else { Ok(()) }
    }

    pub(crate) async fn release(&self, held: &ClaimHandle, release: &Release) -> Result<Settled, StoreError> {
        let write = || self.releasing(held, release);
        if release.kind == ReleaseKind::Delete {
            self.recent_keys.forget(&held.key);
        }
        self.settle(&held.key, write, |found, now| protocol::release(found, held, release, now)).await
    }

    fn releasing(&self, held: &ClaimHandle, release: &Release) -> BoundStatement<D> {
        let texts = &self.texts;
        let (delay, retention, error) = (micros(release.delay), micros(release.retention), &*release.error);
        let end = |state| by_owner(&texts.end, held).bind(row::code(state)).bind(retention).bind(error);
        let vacate = |off: i64| by_owner(&texts.vacate, held).bind(delay).bind(retention).bind(error).bind(off);
        match release.kind {
            ReleaseKind::Delete => by_owner(&texts.delete, held),
            ReleaseKind::Vacate => vacate(0),
            ReleaseKind::Refund => vacate(1),
            ReleaseKind::MarkFailed => end(StateKind::Failed),
            ReleaseKind::MarkDead => end(StateKind::Dead),
        }
    }

    pub(crate) async fn forget(
        &self,
        key: &Key,
        expected: FencingToken,
        force: bool,
        retention: Duration,
    ) -> Result<Settled, StoreError> {
        self.by_the_protocol(key, |found, now| protocol::forget(found, expected, force, retention, now)).await
    }

    pub(crate) async fn inspect(&self, key: &Key) -> Result<Option<InspectedRecord>, StoreError> {
        let found = self.look(key).await?.filter(|seen| live(Some(&seen.record), seen.now).is_some());
        Ok(found.map(|FoundRecord { record, now, .. }| InspectedRecord { record, now }))
    }

    /// Sends a guarded write. If nothing was written, the protocol decides on the record.
    async fn settle(
        &self,
        key: &Key,
        write: impl Fn() -> BoundStatement<D> + Send,
        decide: impl Fn(Option<&Record>, Timestamp) -> (Settled, Write) + Send,
    ) -> Result<Settled, StoreError> {
        match self.runner.execute(self.timed(write())).await? {
            StatementResult::Done(1..) => Ok(Settled::Done),
            _ => self.by_the_protocol(key, decide).await,
        }
    }

    /// Reads the record, decides, and writes if the record has not changed.
    async fn by_the_protocol(
        &self,
        key: &Key,
        decide: impl Fn(Option<&Record>, Timestamp) -> (Settled, Write) + Send,
    ) -> Result<Settled, StoreError> {
        for _ in 0..answer::TRIES {
            let Some(FoundRecord { record, now, .. }) = self.look(key).await? else {
                return Ok(Settled::Lost { now: StateKind::Absent });
            };
            let (settled, write) = decide(Some(&record), now);
            match self.write(key, &record, write).await? {
                WriteResult::Done => return Ok(settled),
                WriteResult::Raced => {}
                WriteResult::Busy => tokio::time::sleep(BETWEEN).await,
            }
        }
        Err(answer::outrun())
    }

    async fn write(&self, key: &Key, found: &Record, write: Write) -> Result<WriteResult, StoreError> {
        let record = match write {
            Write::Keep => return Ok(WriteResult::Done),
            Write::Put(record) => record,
            // The record expires at once, and the purge removes it.
            Write::Delete => Record { expires_at: found.updated_at, ..found.clone() },
        };
        D::put(&mut StatementTarget::pool(self), self.putting(&self.texts.put, key, found, &record)).await
    }

    pub(super) fn putting(&self, put: &Statement, key: &Key, found: &Record, record: &Record) -> BoundStatement<D> {
        let old = Parts::of(found);
        BoundStatement::new(put)
            .bind_all(columns(key, record))
            .bind(row::code(found.state.kind()))
            .bind(old.owner.map(owner))
            .bind(signed(Timestamp(found.fencing.0)))
            .bind(i64::from(found.attempt))
            .bind(old.until.map(signed))
            .bind(signed(found.expires_at))
            .bind(signed(found.updated_at))
            .bind(self.dialect.lock(key))
    }
}

/// Returns the answer to a claim, and the write that the answer requires.
pub(super) fn decide(seen: &FoundRecord, request: &ClaimRequest) -> (Claim, Write) {
    // A grant is valid even if its lease has already expired.
    match answer::claim(&seen.record, seen.granted, request, seen.now) {
        Some(answer) if seen.granted => (answer, Write::Keep),
        _ => protocol::claim(Some(&seen.record), request, seen.now),
    }
}

/// Returns the values of a record in the order of [`COLUMNS`](row::COLUMNS).
fn columns(key: &Key, record: &Record) -> [Value; 16] {
    let parts = Parts::of(record);
    [
        id(key).into(),
        VERSION.into(),
        key.name().into(),
        row::code(record.state.kind()).into(),
        parts.owner.map(owner).into(),
        signed(Timestamp(record.fencing.0)).into(),
        i64::from(record.attempt).into(),
        signed(parts.until.unwrap_or(Timestamp(0))).into(),
        parts.taken_over.map(|fencing| signed(Timestamp(fencing.0))).into(),
        record.fingerprint.map(|fingerprint| fingerprint.to_bytes().to_vec()).into(),
        signed(record.expires_at).into(),
        signed(record.first_seen).into(),
        signed(record.updated_at).into(),
        parts.value.as_deref().map(<[u8]>::to_vec).into(),
        parts.error.as_deref().into(),
        record.display.as_deref().into(),
    ]
}

/// Returns a statement of an owner with its first three parameters bound.
pub(super) fn by_owner<D: Driver>(text: &Statement, held: &ClaimHandle) -> BoundStatement<D> {
    BoundStatement::new(text).bind_all(owned(held))
}

/// Returns the key, the owner and the fencing number of a grant.
pub(super) fn owned(held: &ClaimHandle) -> [Value; 3] {
    // A number that exceeds the column belongs to no grant.
    let number = held.fencing.map(|fencing| i64::try_from(fencing.0).unwrap_or(-1));
    [id(&held.key).into(), owner(held.owner).into(), number.into()]
}
