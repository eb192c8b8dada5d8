//! Addresses, certificates, permissions, and checks of real servers.
mod access;
mod health_check;
mod permissions;
mod read_only;
mod requests;
mod server_states;
mod tls;
