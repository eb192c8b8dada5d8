//! The page of the stores' health checks.
use askama::Template;
use axum::response::Response;
use idempotent_core::store::Severity;
use idempotent_core::{Store, StoreError};
use serde::Serialize;

use super::{Layout, Page, or_error, shown};
use crate::error::PageError;
use crate::targets::answer;

#[derive(Template, Serialize)]
#[template(path = "health.html")]
struct HealthView {
    #[serde(skip)]
    layout: Layout,
    stores: Vec<StoreHealth>,
}

#[derive(Serialize)]
struct StoreHealth {
    store: String,
    findings: Vec<FindingRow>,
    /// The store has no checks.
    is_unchecked: bool,
    error: Option<String>,
}

#[derive(Serialize)]
struct FindingRow {
    severity: &'static str,
    check: &'static str,
    server: String,
    text: String,
}

pub(crate) async fn health(page: Page) -> Result<Response, PageError> {
    let targets = &page.shared.targets.stores;
    let mut stores = Vec::new();
    for name in targets.names() {
        let store = targets.open(Some(name))?;
        let (findings, error) = or_error(answer(findings(&*store.target)).await);
        let is_unchecked = findings.is_none() && error.is_none();
        stores.push(StoreHealth { store: store.name, findings: findings.unwrap_or_default(), is_unchecked, error });
    }
    Ok(page.answer(&HealthView { layout: page.layout("Health"), stores }))
}

/// Returns the numbers of failed checks and of warnings of a store, or `None` if the store has no checks.
pub(super) async fn problems(store: &dyn Store) -> Result<Option<[usize; 2]>, StoreError> {
    let findings = findings(store).await?;
    let of = |findings: &[FindingRow], severity| findings.iter().filter(|row| row.severity == severity).count();
    Ok(findings.map(|findings| ["fail", "warn"].map(|severity| of(&findings, severity))))
}

/// Returns the findings of a store, the most severe first, or `None` if the store has no checks.
async fn findings(store: &dyn Store) -> Result<Option<Vec<FindingRow>>, StoreError> {
    let Some(health) = store.capabilities().health else { return Ok(None) };
    let report = health.check().await?;
    let mut findings: Vec<_> = report.findings().iter().collect();
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity()));
    let row = |finding: &&idempotent_core::store::HealthFinding| FindingRow {
        severity: match finding.severity() {
            Severity::Ok => "ok",
            Severity::Warn => "warn",
            _ => "fail",
        },
        check: finding.subject(),
        server: shown(finding.server()),
        text: shown(finding.text()),
    };
    Ok(Some(findings.iter().map(row).collect()))
}
