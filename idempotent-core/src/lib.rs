//! Claim a key, run the handler under a lease, remember how it ended.
mod claim;
mod clock;
mod codec;
mod entropy;
mod error;
mod fingerprint;
mod key;
pub mod protocol;
mod record;
pub mod store;
mod waiters;
pub use claim::*;
pub use clock::*;
pub use codec::*;
pub use entropy::*;
pub use error::*;
pub use fingerprint::*;
pub use key::*;
pub use record::*;
pub use store::*;
/// x
#[derive(Debug, thiserror::Error)]
#[error("x")]
pub struct PolicyError;
