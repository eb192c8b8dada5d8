//! The response to a request: the rules for storing it, and its stored form.
pub(crate) mod body;
pub(crate) mod body_store;
pub(crate) mod classify;
mod encoding;
pub(crate) mod exchange_headers;
pub(crate) mod replay_header;
pub(crate) mod rules;
pub(crate) mod store_policy;
pub(crate) mod stored;
