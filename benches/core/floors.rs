//! The minimal cost of remembering a key: no lease, no owner, and no lock across calls.
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Mutex;

use sha2::{Digest, Sha256};

use crate::keys;

/// 1,024 maps with a lock each, selected by the hash of the key.
pub struct BareMap(Vec<Mutex<Shard>>);

type Shard = HashMap<u128, Bare, BuildHasherDefault<AsItIs>>;

struct Bare {
    owner: u64,
    consumed: bool,
}

impl BareMap {
    pub fn new() -> Self {
        Self((0..1_024).map(|_| Mutex::default()).collect())
    }

    fn shard(&self, hash: u128) -> &Mutex<Shard> {
        &self.0[usize::try_from(hash >> 118).unwrap()]
    }

    /// The minimum of a claim and a completion.
    pub fn insert_and_update(&self, number: u64) {
        let hash = hash(number);
        self.shard(hash).lock().unwrap().insert(hash, Bare { owner: number, consumed: false });
        if let Some(bare) = self.shard(hash).lock().unwrap().get_mut(&hash).filter(|bare| bare.owner == number) {
            bare.consumed = true;
        }
    }

    /// The minimum of a duplicate.
    pub fn look_up(&self, number: u64) -> bool {
        let hash = hash(number);
        self.shard(hash).lock().unwrap().get(&hash).is_some_and(|bare| bare.consumed)
    }
}

/// Returns the hash of the identity, computed directly: namespace, scene, scope and key, each with its length.
pub fn hash(number: u64) -> u128 {
    let mut hash = Sha256::new();
    for field in [&b"idempotent"[..], b"mq", b"bench", &keys::text(number)] {
        hash.update((field.len() as u64).to_le_bytes());
        hash.update(field);
    }
    let mut short = [0; 16];
    short.copy_from_slice(&hash.finalize()[..16]);
    u128::from_be_bytes(short)
}

#[derive(Default)]
struct AsItIs(u64);

impl Hasher for AsItIs {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("keys are numbers");
    }

    fn write_u128(&mut self, hash: u128) {
        self.0 = hash as u64;
    }
}
