//! Idempotency keys, fingerprints of payloads, and issued tokens.
pub use idempotent_core::{
    DerivedKey, DisplayKey, Fingerprint, Fingerprinted, Fingerprinter, Identity, Key, KeyError, KeyExtractor, KeyPart,
    KeyStrategy, Parts, Scene, Token, Tokens, key_hash,
};
