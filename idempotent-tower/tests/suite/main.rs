//! Tests of the layer and of annotated handlers, over calls in this process and over real sockets.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, missing_debug_implementations, missing_docs)]
mod attribute;
mod layer;
mod sockets;
