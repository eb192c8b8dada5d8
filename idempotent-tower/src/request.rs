//! The parts of a request that identify it: its key, its caller and its payload.
pub(crate) mod body;
pub(crate) mod key;
pub(crate) mod payload;
pub(crate) mod principal;
pub(crate) mod read_body;
mod unambiguous_json;
pub(crate) mod unread_body;
