//! The layer under fire: real sockets and processes, clients that write the bytes themselves, and handlers that count how
//! often they really ran.
mod bodies;
mod crash;
mod disconnect;
mod drain;
mod hostile;
mod http2;
mod keys;
mod outage;
mod pipelining;
mod principals;
mod races;
mod refusals;
mod scenes;
mod support;
mod uploads;
mod waiting;
