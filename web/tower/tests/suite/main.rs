//! Tests of the layer and of annotated handlers, by calls in this process and over sockets.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, missing_debug_implementations, missing_docs)]
mod attribute;
mod decisions;
mod layer;
mod sockets;
