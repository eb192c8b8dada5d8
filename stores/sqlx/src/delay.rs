//! The delay table: tasks are scheduled alone or in a transaction of the application, and delivered once they are
//! due.
//!
//! Read in this order: `statements` (the SQL), `schedule` (scheduling and cancelling), `taken_task` (due tasks and
//! their holders), `poll_scheduler` (the times at which a source looks), `source` and `settler` (for a consumer),
//! `dead_letters`.
mod builder;
mod counts;
mod database;
mod dead_letters;
mod error;
mod handle;
mod poll_scheduler;
mod schedule;
mod scheduled_task;
mod settler;
mod source;
mod statements;
mod taken_task;
mod timing_wheel;

pub use self::builder::DelayTableBuilder;
pub use self::counts::{DelayTableBacklog, DelayTableCounts};
pub use self::database::DelayDb;
pub use self::dead_letters::DelayTableDeadLetters;
pub use self::handle::DelayTable;
pub use self::scheduled_task::ScheduledTask;
pub use self::settler::DelayTableTag;
pub use self::source::DelayTableSource;

/// The columns that the statements name.
pub(crate) const COLUMNS: [&str; 16] = [
    "seq",
    "id",
    "live",
    "headers",
    "body",
    "scheduled_at",
    "due_at",
    "holder",
    "taken",
    "lost",
    "attempt",
    "first_at",
    "deaths",
    "letter",
    "reason",
    "dead_at",
];
