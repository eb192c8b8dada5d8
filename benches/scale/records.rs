//! The scripts of the store for claims and completions, one call for each key.
use std::ops::Range;
use std::sync::{Arc, Mutex};

use idempotent::RedisStore;
use idempotent_harness::servers::{RedisServer, Value};
use tokio::runtime::Runtime;

use crate::pipeline::{DEPTH, Pipeline};

/// The lease in µs.
pub const LEASE: &[u8] = b"30000000";
/// The time in µs for which a record without a result is kept.
pub const MEMORY: &[u8] = b"604800000000";
/// The time to live of a record in flight, in ms.
pub const TTL: &[u8] = b"604830000";
/// The retention of a consumed record in ms.
const RETENTION: &[u8] = b"604800000";

/// The scripts as the store sends them.
pub struct Records {
    pipeline: Pipeline,
    claim: Vec<u8>,
    complete: Vec<u8>,
}

impl Records {
    /// Takes the scripts from a store that is connected to this server.
    pub fn new(server: &RedisServer, runtime: &Runtime) -> Self {
        let texts = Arc::new(Mutex::new(Vec::new()));
        let seen = texts.clone();
        let builder = RedisStore::builder(server.url()).edit_scripts(move |text| {
            seen.lock().unwrap().push(text.to_owned());
            text.to_owned()
        });
        drop(runtime.block_on(builder.connect()).unwrap());
        let mut pipeline = Pipeline::connect(server);
        let texts = texts.lock().unwrap();
        let mut load = |first: &str| {
            let script = texts.iter().find(|text| text.lines().any(|line| line.starts_with(first)));
            pipeline.load(script.unwrap_or_else(|| panic!("no script begins with `{first}`")))
        };
        let (claim, complete) = (load("-- Claims."), load("-- Consuming becomes consumed."));
        Self { pipeline, claim, complete }
    }

    /// Claims and completes new keys.
    pub fn cycles(&mut self, numbers: Range<u64>) {
        for from in numbers.clone().step_by(DEPTH as usize) {
            let chunk = from..(from + DEPTH).min(numbers.end);
            chunk.clone().for_each(|number| self.claim(number));
            let claimed = self.pipeline.answers();
            for (number, answer) in chunk.zip(claimed) {
                let Value::Integer(stamp) = answer else { panic!("{number} is not new: {answer:?}") };
                self.complete(number, stamp);
            }
            let completed = self.pipeline.answers();
            assert!(completed.iter().all(|answer| matches!(answer, Value::Integer(_))), "{completed:?}");
        }
    }

    /// Claims keys that are consumed.
    pub fn duplicates(&mut self, numbers: Range<u64>) {
        for from in numbers.clone().step_by(DEPTH as usize) {
            (from..(from + DEPTH).min(numbers.end)).for_each(|number| self.claim(number));
            let answers = self.pipeline.answers();
            let is_consumed = |answer: &Value| answer.items().get(2).is_some_and(|record| record.text().len() == 20);
            assert!(answers.iter().all(is_consumed), "{answers:?}");
        }
    }

    fn claim(&mut self, number: u64) {
        let (key, owner) = (key(number), owner(number));
        self.pipeline.add(&[
            &b"EVALSHA"[..],
            &self.claim[..],
            b"1",
            key.as_bytes(),
            LEASE,
            MEMORY,
            TTL,
            b"17",
            b"0",
            &owner,
        ]);
    }

    fn complete(&mut self, number: u64, stamp: i64) {
        let (key, guard) = (key(number), guard(number, stamp));
        self.pipeline.add(&[&b"EVALSHA"[..], &self.complete[..], b"1", key.as_bytes(), RETENTION, b"1", &guard]);
    }
}

/// Returns a key with 40 characters.
fn key(number: u64) -> String {
    format!("orders:mq:bench:{{{number:022}}}")
}

/// Returns an owner token, and flags without a fingerprint.
pub fn owner(number: u64) -> [u8; 17] {
    let mut owner = [0; 17];
    owner[..8].copy_from_slice(&(number + 1).to_be_bytes());
    owner
}

/// Returns the beginning of a first grant, by which a completion recognizes its record.
pub fn guard(number: u64, stamp: i64) -> Vec<u8> {
    let mut guard = format!("..{stamp:016}001").into_bytes();
    guard[..2].copy_from_slice(b"\x81P");
    guard.extend_from_slice(&owner(number));
    guard
}
