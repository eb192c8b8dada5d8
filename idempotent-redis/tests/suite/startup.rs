//! Addresses, certificates, rights, and what a server may be like: as real servers say it.
mod access;
mod checkup;
mod rights;
mod service;
mod states;
mod tls;
