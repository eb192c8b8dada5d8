//! Addresses, certificates, permissions, and checks of real servers.
mod access;
mod health_check;
mod permissions;
mod requests;
mod server_states;
mod tls;
