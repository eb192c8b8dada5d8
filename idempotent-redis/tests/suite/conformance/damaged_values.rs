//! Values damaged by another client.
use std::sync::Arc;

use idempotent_core::Key;
use idempotent_harness::servers::RedisServer;
use idempotent_testkit::{Damage, DamageInjector};

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

/// Returns a record that owner 1 holds since just now, with a long retention.
fn sample(until: u64, fencing: &[u8; 16]) -> Vec<u8> {
    let now: u64 = u64::try_from(std::time::UNIX_EPOCH.elapsed().unwrap().as_micros()).unwrap();
    let mut out = b"\x81P".to_vec();
    out.extend(fencing);
    out.extend(b"001");
    out.extend(1_u128.to_be_bytes());
    out.push(0);
    for time in [now, now, if until == 0 { now + 30_000_000 } else { until }, 3_600_000_000, 0] {
        out.extend(&time.to_be_bytes()[1..]);
    }
    out.extend(b"0000000");
    out
}

const FENCING: &[u8; 16] = b"0000000000000001";

fn damaged(damage: Damage) -> Option<Vec<u8>> {
    let mut bytes = sample(0, FENCING);
    match damage {
        Damage::CutOff => bytes.truncate(40),
        Damage::Noise => bytes[2..].iter_mut().for_each(|byte| *byte = byte.wrapping_mul(151).wrapping_add(89)),
        Damage::NewerVersion => bytes[0] = 0x8f,
        Damage::NoOwner => drop(bytes.drain(21..37)),
        Damage::BadFencing => bytes = sample(0, b"9999999999999999"),
        Damage::EndlessLease => bytes = sample((1 << 53) - 1, FENCING),
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
