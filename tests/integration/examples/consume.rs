//! The main job, `apps/consume`, as its users meet it: a process with files.

mod crash;
mod fleet;
mod job;
mod malformed;
mod options;
mod queues;
mod redis;
pub(crate) mod shared;
mod sources;
mod sql;
pub(crate) mod support;
mod transactional;
