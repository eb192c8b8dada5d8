//! The plan of a workload.
use super::constants::Constants;
use super::error::PlanError;
use super::explanation::{self, Step};
use super::form::{self, Form, FormName, MOST_TRANSACTIONS};
use super::quantity::count;
use super::workload::Workload;

/// The resources that a workload needs in each form.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Plan {
    /// The workload.
    pub workload: Workload,
    /// The forms, the cheapest first. Without prices, the one with the fewest stored bytes is first.
    pub forms: Vec<Form>,
    /// Remarks for the operator.
    pub notes: Vec<String>,
    /// The calculation in steps.
    pub steps: Vec<Step>,
}

impl Plan {
    /// Calculates a plan.
    ///
    /// # Errors
    /// [`OutOfRange`](PlanError::OutOfRange), with the value of the workload that is out of its range.
    pub fn of(workload: &Workload, constants: &Constants) -> Result<Self, PlanError> {
        workload.check()?;
        let names = FormName::of(workload.engine).iter();
        let mut forms: Vec<_> = names.map(|name| form::calculate(*name, workload, constants)).collect();
        let stored = |form: &Form| form.resident_bytes.or(form.disk_bytes).unwrap_or_default();
        forms.sort_by(|one, other| {
            let by_cost = one.cost.unwrap_or_default().total_cmp(&other.cost.unwrap_or_default());
            let by_size = stored(one).total_cmp(&stored(other));
            by_cost.then(by_size).then(one.cores_at_peak.total_cmp(&other.cores_at_peak))
        });
        let (notes, steps) = (notes(&forms), explanation::steps(workload, constants, &forms));
        Ok(Self { workload: workload.clone(), forms, notes, steps })
    }
}

/// Returns the remarks about the forms of a plan.
fn notes(forms: &[Form]) -> Vec<String> {
    let mut notes = Vec::new();
    for form in forms {
        if let Some(transactions) = form.transactions_per_day.filter(|number| *number > MOST_TRANSACTIONS) {
            notes.push(format!(
                "{}: {} transactions a day; one database freezes all rows after {}",
                form.name.text(),
                count(transactions),
                count(MOST_TRANSACTIONS)
            ));
        }
        if form.name == FormName::ValkeyRecords {
            notes.push("the constants of valkey were measured on redis".to_owned());
        }
    }
    if forms.iter().any(|form| form.disk_bytes.is_some()) {
        notes.push("a database that is not idle needs room for its write-ahead log and for vacuum, too".to_owned());
    }
    notes.push("a busy machine needs up to 3 times the cores; --explain shows each constant".to_owned());
    notes
}
