//! How a queue asks its slots.
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::future::{join, join_all};
use idempotent_core::StoreError;
use idempotent_mq::DelayError;
use redis::Value;

use super::layout::Keys;
use super::queue::{Closing, DelayQueue};
use super::received::{Handed, Receipt, Taken};
use super::reply_items::{Items, bytes};
use super::scripts::Which;
use super::servers::{Args, delay_error, strange};

/// What is brought by one question to a slot.
pub(crate) struct Batch {
    pub(crate) taken: Vec<Taken>,
    /// Of what was to be committed on the way.
    pub(crate) committed: Result<Vec<Closing>, StoreError>,
    /// After which time it is worth asking again; nothing where only a new message makes it so.
    pub(crate) again: Option<Duration>,
}

/// Of a reason that is kept with a message, in bytes.
const LONGEST_REASON: usize = 256;

impl DelayQueue {
    pub(crate) fn slots(&self) -> impl Iterator<Item = u16> + use<> {
        0..self.0.settings.slots
    }

    /// Asks one slot for what is due, and commits before that what lies there, no more than [`MOST`]. `waits`: whether to
    /// be told of what becomes due earlier.
    pub(crate) async fn take_from(
        &self,
        slot: u16,
        room: usize,
        waits: bool,
        done: &[&Receipt],
    ) -> Result<Batch, StoreError> {
        let (keys, room) = (self.keys(slot), room.clamp(1, MOST));
        let args = Args::new().number(room as u64).number(micros(self.0.settings.visibility));
        let args = args.number(self.0.settings.max_retries).number(u64::from(waits)).done(done);
        let said = self.0.servers.ask(Which::Take, keys, &args).await?;
        let answer = read_batch(said, slot, keys).ok_or_else(|| strange("taking"))?;
        let committed = closings(&answer.committed, done.len()).ok_or_else(|| strange("taking"))?;
        if answer.died > 0 {
            let (topic, died) = (&*self.0.topic.name, answer.died);
            tracing::warn!(target: "idempotent", topic, died, "messages that nobody settled in time were put aside");
        }
        // There may be more, and nobody was told that we sleep.
        let again = if answer.handed.len() >= room { Some(Duration::ZERO) } else { answer.again };
        let mut taken = Vec::with_capacity(answer.handed.len());
        for handed in answer.handed {
            match handed.decode() {
                Ok(message) => taken.push(message),
                Err(strange) => self.bury_unread(&strange).await?,
            }
        }
        Ok(Batch { taken, committed: Ok(committed), again })
    }

    /// Commits these, and asks a slot for what is due: by one step where they lie there too, else side by side.
    pub(crate) async fn commit_and_take_from(
        &self,
        slot: u16,
        room: usize,
        waits: bool,
        done: &[Taken],
    ) -> Result<Batch, StoreError> {
        let (mut here, mut elsewhere) = (Vec::new(), Vec::new());
        for (at, taken) in done.iter().enumerate() {
            let is_here = Arc::ptr_eq(&taken.receipt.keys, self.keys(slot)) && here.len() < MOST;
            if is_here { &mut here } else { &mut elsewhere }.push(at);
        }
        let receipts = |places: &[usize]| places.iter().map(|at| &done[*at].receipt).collect::<Vec<_>>();
        let (committed_here, committed_elsewhere) = (receipts(&here), receipts(&elsewhere));
        let committing = self.each(Which::Done, &committed_elsewhere, None);
        let (others, asked) = join(committing, self.take_from(slot, room, waits, &committed_here)).await;
        let mut batch = asked?;
        // What was taken is told also where a commit failed.
        batch.committed = batch.committed.and_then(|ours| Ok((ours, others?))).map(|(ours, others)| {
            let mut all: Vec<_> = here.into_iter().zip(ours).chain(elsewhere.into_iter().zip(others)).collect();
            all.sort_by_key(|(at, _)| *at);
            all.into_iter().map(|(_, closing)| closing).collect()
        });
        Ok(batch)
    }

    /// A newer version wrote it, or somebody else: a person has to look at it.
    async fn bury_unread(&self, handed: &Handed) -> Result<(), StoreError> {
        let reason = "it is not written as this version of the library does";
        let letter = format!("1 {} {} {} 0:{reason}", handed.first_at.0, handed.first_at.0, handed.deaths + 1);
        self.bury(&handed.receipt, &letter).await.map(drop)
    }

    /// Whether it was still this delivery's.
    pub(crate) async fn bury(&self, receipt: &Receipt, letter: &str) -> Result<bool, StoreError> {
        let args = Args::new().text(&receipt.member).number(receipt.number).text(&receipt.name).text(letter);
        Ok(self.0.servers.ask(Which::Bury, &receipt.keys, &args).await? == Value::Int(1))
    }

    pub(crate) async fn put_back(
        &self,
        receipt: &Receipt,
        how: &str,
        delay: Duration,
        (attempt, first_at): (u32, u64),
        reason: &str,
    ) -> Result<Value, StoreError> {
        let args = Args::new().text(&receipt.member).number(receipt.number).text(how).number(micros(delay));
        let args = args.number(self.0.settings.max_retries).number(attempt).number(first_at);
        let args = args.text(&reason[..reason.floor_char_boundary(LONGEST_REASON)]);
        self.0.servers.ask(Which::Back, &receipt.keys, &args).await
    }

    /// One script for those of each slot, side by side.
    pub(crate) async fn each(
        &self,
        which: Which,
        receipts: &[&Receipt],
        visible: Option<Duration>,
    ) -> Result<Vec<Closing>, StoreError> {
        let mut places: Vec<usize> = (0..receipts.len()).collect();
        places.sort_by_key(|at| Arc::as_ptr(&receipts[*at].keys));
        let of_slots = places.chunk_by(|one, next| Arc::ptr_eq(&receipts[*one].keys, &receipts[*next].keys));
        let steps = of_slots.flat_map(|slot| slot.chunks(MOST)).map(async |some| {
            let args = visible.map_or_else(Args::new, |time| Args::new().number(micros(time)));
            let named = some.iter().map(|at| receipts[*at]).collect::<Vec<_>>();
            let args = if which == Which::Done { args.done(&named) } else { args.held(&named) };
            let said = self.0.servers.ask(which, &receipts[some[0]].keys, &args).await?;
            let said = bytes(said).and_then(|said| closings(&said, some.len()));
            said.map(|said| (some, said)).ok_or_else(|| strange("settling"))
        });
        let mut all = vec![Closing::Lost; receipts.len()];
        // All of them are heard: none is given up because another failed.
        for settled in join_all(steps).await {
            let (some, said) = settled?;
            for (at, closing) in some.iter().zip(said) {
                all[*at] = closing;
            }
        }
        Ok(all)
    }

    pub(crate) fn keys(&self, slot: u16) -> &Arc<Keys> {
        // Slots are counted by the topic's own number of them, which is not 0.
        let slots = &self.0.topic.slots;
        &slots[usize::from(slot) % slots.len()]
    }

    pub(crate) async fn ask(&self, which: Which, slot: u16, args: &Args, doing: &str) -> Result<Value, DelayError> {
        let said = self.0.servers.ask(which, self.keys(slot), args).await;
        said.map_err(|error| delay_error(doing, error))
    }

    /// Whether the servers tell us of what is due earlier.
    pub(crate) fn hears(&self) -> bool {
        self.0.servers.hub.hears()
    }

    pub(crate) fn slot_for(&self, basis: Option<&str>) -> u16 {
        let turn = || self.0.turn.fetch_add(1, Ordering::Relaxed) % usize::from(self.0.settings.slots);
        basis.map_or_else(|| u16::try_from(turn()).unwrap_or_default(), |basis| self.0.topic.slot_of(basis))
    }
}

/// Messages of one step: no other client waits longer than it takes.
pub(crate) const MOST: usize = 256;

pub(crate) fn micros(time: Duration) -> u64 {
    // A part of a µs counts as a whole one: never early.
    u64::try_from(time.as_nanos().div_ceil(1_000)).unwrap_or(u64::MAX).min(8_000_000_000_000_000)
}

/// What a take said.
struct Answer {
    again: Option<Duration>,
    died: u64,
    committed: Vec<u8>,
    handed: Vec<Handed>,
}

fn read_batch(said: Value, slot: u16, keys: &Arc<Keys>) -> Option<Answer> {
    let mut items = Items::of(said)?;
    let (now, again, died) = (items.number()?, items.signed()?, items.number()?);
    let again = u64::try_from(again).ok().map(|at| Duration::from_micros(at.saturating_sub(now)));
    let (committed, mut handed) = (items.bytes()?, Vec::new());
    while !items.is_empty() {
        let (members, states, values) = (items.text()?, items.all()?, items.all()?);
        let (mut members, mut states) = (members.split(' '), states.into_iter());
        for value in values {
            let (member, state) = (members.next()?, states.next().and_then(bytes));
            // Its body is gone: there is nothing to hand out.
            if value != Value::Nil {
                handed.push(Handed::read(member, state, bytes(value)?, slot, keys, now)?);
            }
        }
    }
    Some(Answer { again, died, committed, handed })
}

/// One digit for each that was to be settled.
fn closings(said: &[u8], count: usize) -> Option<Vec<Closing>> {
    let closing = |digit: &u8| match digit {
        b'1' => Some(Closing::Done),
        b'0' => Some(Closing::Lost),
        _ => None,
    };
    said.iter().map(closing).collect::<Option<Vec<_>>>().filter(|all| all.len() == count)
}
