//! Several requests in one transaction. With the write lock in hand nobody can come between, so they are decided
//! by the protocol itself, one after the other, and what they wrote is written at once.
use std::collections::HashMap;
use std::time::Duration;

use async_trait::async_trait;
use idempotent_core::protocol::{self, Write};
use idempotent_core::{
    Batch, Claim, ClaimRequest, Completion, Held, Key, Micros, Record, Settled, State, StoreError, StoreErrorKind,
};
use sqlx::Connection;
use sqlx::sqlite::SqliteConnection;

use super::lane::{Query, Turn, query};
use super::{SqliteStore, id, now, owner};
use crate::answer;
use crate::row::{self, VERSION, signed};

/// Keys or records in one statement: a full batch is prepared once, and 64 records are far below the most
/// parameters that SQLite takes.
const CHUNK: usize = 64;

/// What is known of a key in this batch. A record that cannot be read is an error for each of its requests.
struct Slot {
    found: Result<Option<Record>, (StoreErrorKind, String)>,
    dirty: bool,
}

#[async_trait]
impl Batch for SqliteStore {
    async fn claim_all(&self, requests: &[ClaimRequest]) -> Vec<Result<Claim, StoreError>> {
        self.batch(requests, |request| &request.key, |request, found, now| protocol::claim(found, request, now)).await
    }

    async fn renew_all(&self, held: &[(Held, Duration)]) -> Vec<Result<Settled, StoreError>> {
        let decide =
            |(held, lease): &(Held, Duration), found: Option<&Record>, now| protocol::renew(found, held, *lease, now);
        self.batch(held, |(held, _)| &held.key, decide).await
    }

    async fn complete_all(&self, done: &[(Held, Completion)]) -> Vec<Result<Settled, StoreError>> {
        let decide = |(held, completion): &(Held, Completion), found: Option<&Record>, now| {
            protocol::complete(found, held, completion, now)
        };
        self.batch(done, |(held, _)| &held.key, decide).await
    }
}

impl SqliteStore {
    async fn batch<T: Sync, A: Send>(
        &self,
        items: &[T],
        key: impl Fn(&T) -> &Key + Send + Sync,
        decide: impl Fn(&T, Option<&Record>, Micros) -> (A, Write) + Send + Sync,
    ) -> Vec<Result<A, StoreError>> {
        if items.is_empty() {
            return Vec::new();
        }
        let done = match self.0.writer.turn().await {
            Ok(mut turn) => {
                let done = self.transact(&mut turn, items, key, decide).await;
                turn.end(&done);
                done
            }
            Err(error) => Err(error),
        };
        match done {
            Ok(answers) => answers,
            Err(error) => {
                let (kind, text) = parts(&error);
                let mut all: Vec<_> = items.iter().skip(1).map(|_| Err(again(kind, &text))).collect();
                all.insert(0, Err(error));
                all
            }
        }
    }

    /// A future dropped in here rolls back: the transaction's own drop sends it to the connection's thread.
    async fn transact<T: Sync, A: Send>(
        &self,
        turn: &mut Turn<'_>,
        items: &[T],
        key: impl Fn(&T) -> &Key + Send + Sync,
        decide: impl Fn(&T, Option<&Record>, Micros) -> (A, Write) + Send + Sync,
    ) -> Result<Vec<Result<A, StoreError>>, StoreError> {
        let place = &self.0.place;
        let mut transaction =
            turn.connection()?.begin_with("BEGIN IMMEDIATE").await.map_err(|error| place.error(error))?;
        let keys: HashMap<u128, &Key> = items.iter().map(|item| (key(item).hash(), key(item))).collect();
        let hashes: Vec<u128> = keys.keys().copied().collect();
        let (mut slots, now) = self.load(&mut transaction, &hashes).await?;
        let mut answers = Vec::with_capacity(items.len());
        for item in items {
            let slot = slots.entry(key(item).hash()).or_insert(Slot { found: Ok(None), dirty: false });
            answers.push(slot.step(|found| decide(item, found, now)));
        }
        let dirty: Vec<(&Key, &Record)> = keys
            .iter()
            .filter_map(|(hash, key)| slots.get(hash).filter(|slot| slot.dirty).map(|slot| (*key, slot)))
            .filter_map(|(key, slot)| Some((key, slot.found.as_ref().ok()?.as_ref()?)))
            .collect();
        for chunk in dirty.chunks(CHUNK) {
            let put = chunk
                .iter()
                .fold(query(&self.0.sql.put_all(chunk.len())), |query, (key, record)| put(query, key, record));
            put.execute(&mut *transaction).await.map_err(|error| place.error(error))?;
        }
        transaction.commit().await.map_err(|error| place.error(error))?;
        Ok(answers)
    }

    async fn load(
        &self,
        connection: &mut SqliteConnection,
        hashes: &[u128],
    ) -> Result<(HashMap<u128, Slot>, Micros), StoreError> {
        let (mut slots, mut at) = (HashMap::with_capacity(hashes.len()), None);
        for chunk in hashes.chunks(CHUNK) {
            let look = self.timed(query(&self.0.sql.look_all(chunk.len())));
            let look = chunk.iter().fold(look, |look, hash| look.bind(Box::<[u8]>::from(hash.to_be_bytes())));
            let rows = look.fetch_all(&mut *connection).await;
            for row in rows.map_err(|error| self.0.place.error(error))? {
                // One time for the whole batch: that of its first look.
                at.get_or_insert(now(&row)?);
                if let Some(hash) = row::id(&row)? {
                    let found = row::record(&row).map(Some).map_err(|error| parts(&error));
                    slots.insert(hash, Slot { found, dirty: false });
                }
            }
        }
        Ok((slots, at.ok_or_else(answer::outrun)?))
    }
}

impl Slot {
    fn step<A>(&mut self, decide: impl FnOnce(Option<&Record>) -> (A, Write)) -> Result<A, StoreError> {
        let found = self.found.as_mut().map_err(|(kind, text)| again(*kind, text))?;
        let (answer, write) = decide(found.as_ref());
        match write {
            Write::Keep => {}
            Write::Put(record) => (*found, self.dirty) = (Some(record), true),
            // Claims, renewals and completions never delete; if one did, an expired record means the same.
            Write::Delete => {
                if let Some(record) = found {
                    (record.expires_at, self.dirty) = (record.updated_at, true);
                }
            }
        }
        Ok(answer)
    }
}

/// Binds a record, in the order of [`COLUMNS`](row::COLUMNS).
fn put(query: Query, key: &Key, record: &Record) -> Query {
    let (mut held, mut until, mut before, mut kept, mut why) = (None, Micros(0), None, None, None);
    match &record.state {
        State::Vacant { not_before, error, taken_over } => {
            (until, before, why) = (*not_before, *taken_over, Some(error.clone()));
        }
        State::Consuming { owner, until: end, taken_over } => {
            (held, until, before) = (Some(*owner), *end, *taken_over);
        }
        State::Consumed { owner, value } => (held, kept) = (Some(*owner), value.clone()),
        State::Failed { error } | State::Dead { error } => why = Some(error.clone()),
    }
    query
        .bind(id(key))
        .bind(VERSION)
        .bind(key.name().to_owned())
        .bind(row::code(record.state.kind()))
        .bind(held.map(|token| owner(token.0)))
        .bind(signed(Micros(record.fencing.0)))
        .bind(i64::from(record.attempt))
        .bind(signed(until))
        .bind(before.map(|fencing| signed(Micros(fencing.0))))
        .bind(record.fingerprint.map(|fingerprint| Box::<[u8]>::from(fingerprint.to_bytes())))
        .bind(signed(record.expires_at))
        .bind(signed(record.first_seen))
        .bind(signed(record.updated_at))
        .bind(kept)
        .bind(why)
        .bind(record.display.clone())
}

/// An error's kind and text: errors cannot be cloned, and one answers for several requests.
fn parts(error: &StoreError) -> (StoreErrorKind, String) {
    let text = error.to_string();
    let shown = format!("{}: ", error.kind());
    (error.kind(), text.strip_prefix(&shown).unwrap_or_default().to_owned())
}

fn again(kind: StoreErrorKind, text: &str) -> StoreError {
    StoreError::new(kind).because(text)
}
