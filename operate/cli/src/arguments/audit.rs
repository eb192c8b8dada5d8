//! The arguments of the command `audit`, and the options of every command that changes something.
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use anyhow::Context;
use clap::Args;
use idempotent::Timestamp;
use idempotent_operate::{AuditFile, AuditFilter, AuditSink, TracingAudit};

use crate::failure::Failure;

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

/// The audit and the confirmation of a change.
#[derive(Args, Debug)]
pub(crate) struct ChangeOptions {
    /// The reason, for the audit log.
    #[arg(long, required_unless_present = "dry_run", value_name = "TEXT")]
    reason: Option<String>,
    /// The author, for the audit log.
    #[arg(long, env = "IDEMPOTENT_BY", value_name = "NAME")]
    by: Option<String>,
    /// A file for the audit log, one JSON object per line [default: the log on stderr].
    #[arg(long, env = "IDEMPOTENT_AUDIT", value_name = "FILE")]
    audit: Option<PathBuf>,
    /// Changes nothing, and prints what the command would change.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Asks for no confirmation.
    #[arg(short, long)]
    pub(crate) yes: bool,
}

impl ChangeOptions {
    /// Opens the audit log. A dry run writes no audit entry, so it creates no file.
    pub(crate) fn audit(&self) -> anyhow::Result<Arc<dyn AuditSink>> {
        let Some(path) = self.audit.as_ref().filter(|_| !self.dry_run) else { return Ok(Arc::new(TracingAudit)) };
        let file = AuditFile::open(path);
        Ok(Arc::new(file.with_context(|| format!("cannot open the audit log `{}`", path.display()))?))
    }

    /// Returns the author and the reason. A dry run writes no audit entry, so it needs neither.
    pub(crate) fn author(&self) -> anyhow::Result<(String, &str)> {
        let by = self.by.clone().or_else(|| std::env::var("USER").ok()).or_else(|| std::env::var("LOGNAME").ok());
        let by = by.or_else(|| self.dry_run.then(|| "dry run".to_owned()));
        let by = by.ok_or_else(|| Failure::Usage("no author: pass --by NAME, or set IDEMPOTENT_BY".into()))?;
        Ok((by, self.reason.as_deref().unwrap_or("dry run")))
    }
}
