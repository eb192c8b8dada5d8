//! Delayed work in a table: it is scheduled by itself or in the transaction of what it is about, and delivered when its time
//! has come.
//!
//! Read in this order: `sql` (the statements), `schedule` (writing, calling off), `take` (what is due, and to whom it belongs),
//! `pace` (when to look), `source` and `settler` (for a consumer), `dead`.
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
mod wakeup;

pub use self::builder::DelayTableBuilder;
pub use self::counts::DelayTableCounts;
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
