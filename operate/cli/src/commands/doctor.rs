//! The command `doctor`: checks of a store that find a loss of records before it happens.
use std::io::{self, Write};

use idempotent::{ConnectError, StoreError, StoreErrorKind};
use idempotent_operate::{KeyFilter, PageLimits, list, store_time};

use super::{OPENING, open, within};
use crate::arguments::{DoctorArguments, FailOn, Format, GlobalOptions};
use crate::backend::Backend;
use crate::failure::Failure;
use crate::finding::{Finding, Severity};
use crate::target::{self, Target};
use crate::{output, queue};

/// The number of records that the check of orphaned keys examines.
const SAMPLE: usize = 10_000;

/// The differences between the clocks, in seconds, that lead to a warning and to a failure.
const APART: [u64; 2] = [1, 300];

pub(super) async fn doctor(global: &GlobalOptions, arguments: &DoctorArguments) -> anyhow::Result<()> {
    let (backend, url) = (target::backend(global)?, target::url(global)?);
    let mut findings = match backend.findings(&url, &global.namespace, &global.names).await {
        Ok(findings) => findings,
        Err(error) => vec![refused(&url, error)?],
    };
    // A store whose tables are missing cannot be opened.
    if findings.iter().all(|finding| finding.severity < Severity::Fail) {
        match open(global).await {
            Ok(target) => findings.extend(checked(global, backend, &target).await?),
            Err(error) => findings.push(refused(&url, error)?),
        }
    }
    if let Some(queue) = &arguments.queue {
        findings.push(within(Some(OPENING), queue::alarm(queue)).await?);
    }
    print(output::format(global.output), &findings)?;
    let worst = findings.iter().map(|finding| finding.severity).max().unwrap_or(Severity::Ok);
    match (worst, arguments.fail_on) {
        (Severity::Fail, _) => Err(Failure::Findings("a check failed; its line names the remedy").into()),
        (Severity::Warn, FailOn::Warn) => Err(Failure::Findings("a check warns; its line names the remedy").into()),
        _ => Ok(()),
    }
}

/// Returns the finding about a store that refuses to open.
///
/// # Errors
/// The store cannot be reached.
fn refused(url: &str, error: anyhow::Error) -> anyhow::Result<Finding> {
    let refused = match error.downcast_ref::<ConnectError>() {
        Some(ConnectError::Store(refused)) => Some(refused),
        _ => error.downcast_ref::<StoreError>(),
    };
    match refused {
        Some(refused) if refused.kind() == StoreErrorKind::Schema => {
            let (server, text) = (idempotent::connect(url).to_string(), refused.to_string());
            Ok(Finding { severity: Severity::Fail, check: "open", server, text })
        }
        _ => Err(error),
    }
}

/// Checks the server, its clock and a sample of the records.
async fn checked(global: &GlobalOptions, backend: Backend, target: &Target) -> anyhow::Result<Vec<Finding>> {
    let finding = |severity, check, text| Finding { severity, check, server: target.name.clone(), text };
    let mut findings = Vec::new();
    // Redis has been checked before.
    if let (Some(health), true) = (target.store.capabilities().health, backend != Backend::Redis) {
        findings.extend(health.check().await?.findings().iter().map(Finding::from));
    }
    // A file has the clock of this machine, and Redis reports its clock.
    if backend.is_database() {
        let now = store_time(&*target.store, Some(&global.namespace)).await?;
        let here = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default().as_secs();
        let apart = here.abs_diff(now.0 / 1_000_000);
        let (severity, text) = clock(apart);
        findings.push(finding(severity, "clock", text));
    }
    let mut filter = KeyFilter::default();
    (filter.namespace, filter.orphaned) = (Some(global.namespace.clone()), true);
    let page = list(&*target.store, &filter, None, PageLimits { keys: SAMPLE, examined: SAMPLE }).await?;
    let (orphans, examined) = (page.keys.len(), page.examined);
    findings.push(if orphans == 0 {
        finding(Severity::Ok, "orphans", format!("none among {examined} records"))
    } else {
        let text = format!(
            "{orphans} keys among {examined} records are held by a worker that is gone; their next duplicate takes over: \
             `idempotent list --orphaned` shows them"
        );
        finding(Severity::Warn, "orphans", text)
    });
    Ok(findings)
}

/// Returns the finding for clocks that are this many seconds apart.
fn clock(apart: u64) -> (Severity, String) {
    let severity = match apart {
        _ if apart <= APART[0] => return (Severity::Ok, "within a second of this machine".to_owned()),
        _ if apart < APART[1] => Severity::Warn,
        _ => Severity::Fail,
    };
    let why = "leases use the store's clock, so synchronize the clocks";
    (severity, format!("{apart} s apart from this machine; {why}"))
}

fn print(format: Format, findings: &[Finding]) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    for finding in findings {
        if format == Format::Table {
            let severity = match finding.severity {
                Severity::Ok => "ok",
                Severity::Warn => "warn",
                Severity::Fail => "FAIL",
            };
            let text = idempotent_operate::escaped(&finding.text);
            writeln!(out, "{severity:<5} {:<12} {}: {text}", finding.check, finding.server)?;
        } else {
            writeln!(out, "{}", serde_json::to_string(finding)?)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_that_are_apart_are_a_warning_and_from_five_minutes_a_failure() {
        for (apart, severity, text) in [
            (1, Severity::Ok, "within a second"),
            (2, Severity::Warn, "2 s apart"),
            (299, Severity::Warn, "299 s apart"),
            (300, Severity::Fail, "300 s apart"),
        ] {
            let (found, told) = clock(apart);
            assert!(found == severity && told.starts_with(text), "{apart}: {found:?} {told}");
        }
    }
}
