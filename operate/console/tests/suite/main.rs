//! Tests of the console over its router.
#![allow(clippy::unwrap_used, clippy::panic)]
mod access;
mod actions;
mod browser;
mod hostile;
mod outage;
mod pages;
mod site;
