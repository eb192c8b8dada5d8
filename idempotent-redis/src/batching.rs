//! Script calls, and the batching of concurrent calls into one round trip.
pub(crate) mod batcher;
pub(crate) mod call;
pub(crate) mod flush;
