//! The arguments of the command `audit`.
use std::path::PathBuf;
use std::time::SystemTime;

use clap::Args;
use idempotent::Timestamp;
use idempotent_operate::AuditFilter;

#[derive(Args, Debug)]
#[command(after_help = "Example:\n  idempotent audit --audit /var/log/idempotent.jsonl --since 24h --unknown")]
pub(crate) struct AuditArguments {
    /// The file that the commands wrote by --audit.
    #[arg(long, env = "IDEMPOTENT_AUDIT", value_name = "FILE")]
    pub(crate) audit: PathBuf,
    /// Only changes of this author.
    #[arg(long, value_name = "NAME")]
    by: Option<String>,
    /// Only changes of this kind, such as `forget` or `discard`.
    #[arg(long, value_name = "ACTION")]
    action: Option<String>,
    /// Only entries since this time, or of this long ago, such as `24h`.
    #[arg(long, value_parser = since, value_name = "TIME")]
    since: Option<Timestamp>,
    /// Only intents without a result. Look at their keys: the change may have happened.
    #[arg(long)]
    unknown: bool,
}

impl AuditArguments {
    pub(crate) fn filter(&self) -> AuditFilter {
        let mut filter = AuditFilter::default();
        filter.by.clone_from(&self.by);
        filter.action.clone_from(&self.action);
        (filter.since, filter.unknown) = (self.since, self.unknown);
        filter
    }
}

/// Parses a time of RFC 3339, or a duration before now.
fn since(text: &str) -> Result<Timestamp, String> {
    if let Ok(age) = humantime::parse_duration(text) {
        let now = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
        return Ok(Timestamp(u64::try_from(now.saturating_sub(age).as_micros()).unwrap_or(u64::MAX)));
    }
    super::dead::time(text).map_err(|error| format!("{error}, or a duration, such as `24h`"))
}
