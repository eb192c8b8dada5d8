//! The executor, its builder and its shutdown.
pub use idempotent_core::{
    AlreadyInstalled, BatchItem, BatchOutput, Call, DeliveryContext, Drained, Executor, ExecutorBuilder, Handler,
    Served, Stopped,
};
