//! Idempotency keys, fingerprints of payloads, and issued tokens.
pub use idempotent_core::{
    DisplayKey, Fingerprint, Fingerprinted, Fingerprinter, Identity, Key, KeyError, KeyExtractor, KeyPart, Parts,
    Scene, Token, Tokens, key_hash,
};
