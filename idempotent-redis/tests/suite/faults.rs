//! Failing connections, memory, processes and clocks during runs on a real server.
mod clock_changes;
mod connections;
mod full_memory;
mod paused_server;
mod refusals;
mod restart;
mod silent_connections;
