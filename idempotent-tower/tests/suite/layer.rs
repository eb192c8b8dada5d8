//! The 26 decisions of the layer, each by its number: `d1_…` is the carrier of the key, `d26_…` the requests without one.
//! `n…` and `b…` are cases of the lists of bad inputs and behaviours. All against axum routers on a clock that stands
//! still; where the wire matters (`wire.rs`), over a socket.
mod ambiguous_keys;
mod annotated_handlers;
mod bodies;
mod callers_and_routes;
mod disconnect;
mod grpc;
mod in_flight;
mod key_header;
mod large_responses;
mod leases_and_outages;
mod logs;
mod panicking_hooks;
mod passed_requests;
mod payload_check;
mod plain_hyper;
mod problems;
mod requests_without_key;
mod setup_errors;
mod store_backends;
mod store_policy;
mod stored_responses;
mod support;
mod tokens;
mod tower_contract;
mod unread_bodies;
mod wire;
