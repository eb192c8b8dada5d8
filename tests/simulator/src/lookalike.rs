//! The keys at the store, which look alike: as text without case, and as a name and a number without a separator. Real
//! keys end in a hash and never look alike, but a store must not rely on that.
use idempotent_core::{Identity, Key, Scene};

/// The names of the simulated keys at the store.
#[derive(Clone, Debug)]
pub(super) struct Disguise(Vec<(u128, Key)>);

pub(super) const ORDERS: &str = "orders";
pub(super) const INNER: &str = "inner";

pub(super) fn identity(scope: &'static str, key: u64) -> Identity {
    Identity::new(Scene::Rest, scope, &key)
}

/// Returns the executor's own key.
pub(super) fn real(scope: &'static str, key: u64) -> Key {
    // A number in a named scope is always valid.
    identity(scope, key).key(NAMESPACE).unwrap_or_else(|_| Key::from_parts(scope, key.into()))
}

/// The default namespace of an executor.
const NAMESPACE: &str = "idempotent";

/// The first hexadecimal digits are 0 and 1, and the first letter in base64 is an A.
const HASH: u128 = 0x01bc_def0_1234_5678_9abc_def0_1234_5678;

fn lookalike(scope: &'static str, key: u64) -> Key {
    let name = "idempotent:rest:orders";
    match (scope, key) {
        (ORDERS, 0) => Key::from_parts(name, HASH),
        // The same text except for the case of one letter: A is 0 in base64, and a is 26.
        (ORDERS, 1) => Key::from_parts(name, HASH | 26 << 122),
        // The same text if name and hash are joined.
        (ORDERS, 2) => Key::from_parts(&format!("{name}1"), HASH ^ 1 << 120),
        _ => real(scope, key),
    }
}

impl Disguise {
    pub(super) fn new() -> Self {
        let names = (0..super::plan::KEYS).map(|key| (ORDERS, key)).chain([(INNER, 0)]);
        Self(names.map(|(scope, key)| (real(scope, key).hash(), lookalike(scope, key))).collect())
    }

    pub(super) fn of(&self, key: &Key) -> Key {
        self.0.iter().find(|(hash, _)| *hash == key.hash()).map_or_else(|| key.clone(), |(_, key)| key.clone())
    }
}

/// Returns the hash of the key as the store sees it.
pub(super) fn hash(scope: &'static str, key: u64) -> u128 {
    lookalike(scope, key).hash()
}
