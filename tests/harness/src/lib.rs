//! Private servers for tests and benchmarks, and a proxy for faults between client and server.
//!
//! | task | use |
//! |---|---|
//! | start Redis, PostgreSQL, MariaDB, RabbitMQ or RocketMQ | [`servers`] |
//! | stop, pause or kill a server, or set its clock | the methods of its type in [`servers`] |
//! | open pages in a browser | [`webdriver`] |
//! | lose, delay or cut what a client and a server exchange | [`proxy`] |
//! | read what one test logs | [`logs_to`], [`LogLines`] |
mod logs;
pub mod proxy;
pub mod servers;
pub mod webdriver;

pub use self::logs::{LogLines, Logs, logs_to};
