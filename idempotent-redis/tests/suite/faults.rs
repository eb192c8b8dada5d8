//! Connections, memory, processes and clocks that fail under runs on a real server.
mod clock;
mod memory;
mod paused;
mod replies;
mod restart;
mod silence;
