//! The 26 decisions of the layer, each by its number: `d1_…` is the carrier of the key, `d26_…` the requests without one.
//! `n…` and `b…` are cases of the lists of bad inputs and behaviours. All against axum routers on a clock that stands
//! still; where the wire matters (`wire.rs`), over a socket.
mod annotated;
mod bodies;
mod contract;
mod disconnect;
mod grpc;
mod hooks;
mod identity;
mod in_flight;
mod inputs;
mod kept;
mod key;
mod leftover;
mod logs;
mod param;
mod passing;
mod payload;
mod plain_hyper;
mod problems;
mod run;
mod setup;
mod spill;
mod stored;
mod stores;
mod support;
mod token;
mod wire;
