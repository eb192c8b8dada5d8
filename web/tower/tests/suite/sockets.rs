//! The layer over real sockets and in separate processes. The clients write raw bytes, and the handlers count their
//! runs.
mod bodies;
mod broken_uploads;
mod crash;
mod disconnect;
mod drain;
mod hostile_keys;
mod http2;
mod many_keys;
mod pipelining;
mod races;
mod refused_uploads;
mod store_outages;
mod support;
mod tokens_and_params;
mod waiting;
