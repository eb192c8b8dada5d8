//! A fast tier over a durable store.
mod fast;

pub use self::fast::{Fact, FastTier};
