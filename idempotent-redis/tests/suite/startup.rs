//! Addresses, certificates, rights, and what a server may be like: as real servers say it.
mod access;
mod health_check;
mod permissions;
mod requests;
mod server_states;
mod tls;
