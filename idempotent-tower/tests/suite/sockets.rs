//! The layer under fire: real sockets and processes, clients that write the bytes themselves, and handlers that count how
//! often they really ran.
mod bodies;
mod broken_uploads;
mod callers;
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
