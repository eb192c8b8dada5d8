//! The parts of a request that identify it: key, caller and payload. Also its body, as the inner service receives it.
pub(crate) mod body;
pub(crate) mod key;
mod multipart;
pub(crate) mod payload;
pub(crate) mod principal;
pub(crate) mod read_body;
mod unambiguous_json;
pub(crate) mod unread_body;
