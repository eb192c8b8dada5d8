//! Values damaged by another client.
use std::sync::Arc;

use idempotent_core::Key;
use idempotent_harness::servers::RedisServer;
use idempotent_testkit::{Damage, DamageInjector};

use crate::mutants::planted_records::{HELD, Shape};

/// Another client of the servers.
pub(crate) struct Values<B>(pub(crate) Arc<B>);

/// Servers that know which of them holds a key.
pub(crate) trait Behind {
    fn of(&self, key: &Key) -> &RedisServer;
}

impl Behind for RedisServer {
    fn of(&self, _: &Key) -> &RedisServer {
        self
    }
}

/// A record that owner 1 holds since just now, with a long retention.
const SAMPLE: Shape = Shape { kept: 3_600_000_000, fencing: *b"0000000000000001", ..HELD };

fn damaged(damage: Damage) -> Option<Vec<u8>> {
    let mut bytes = SAMPLE.bytes();
    match damage {
        Damage::CutOff => bytes.truncate(40),
        Damage::Noise => bytes[2..].iter_mut().for_each(|byte| *byte = byte.wrapping_mul(151).wrapping_add(89)),
        Damage::NewerVersion => bytes[0] = 0x8f,
        Damage::NoOwner => drop(bytes.drain(21..37)),
        Damage::BadFencing => bytes = Shape { fencing: *b"9999999999999999", ..SAMPLE }.bytes(),
        Damage::EndlessLease => bytes = Shape { until: 1 << 52, ..SAMPLE }.bytes(),
        Damage::UnknownState => bytes[1] = b'Z',
        Damage::Foreign => bytes = b"consuming".to_vec(),
        _ => return None,
    }
    Some(bytes)
}

#[async_trait::async_trait]
impl<B: Behind + Send + Sync> DamageInjector for Values<B> {
    fn holds(&self, damage: Damage) -> bool {
        damaged(damage).is_some()
    }

    async fn plant(&self, key: &Key, damage: Damage) {
        self.0.of(key).command(&[b"SET", key.as_str().as_bytes(), &damaged(damage).unwrap()]);
    }

    async fn look(&self, key: &Key) -> Vec<u8> {
        let dump = self.0.of(key).command(&[b"DUMP", key.as_str().as_bytes()]);
        format!("{dump:?}").into_bytes()
    }
}
