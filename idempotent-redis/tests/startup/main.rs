//! Addresses, certificates, rights, and what a server may be like: as real servers say it.
#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]
mod access;
mod checkup;
mod rights;
mod states;
mod support;
mod tls;
