//! Conditions that compare a plan with a budget.
use std::str::FromStr;

use super::calculation::Plan;
use super::error::PlanError;
use super::form::Form;
use super::quantity::{bytes, count, parse_bytes};

/// The operators, the longer ones first.
static OPERATORS: [(&str, Comparison); 4] = [
    (">=", |figure, limit| figure >= limit),
    ("<=", |figure, limit| figure <= limit),
    (">", |figure, limit| figure > limit),
    ("<", |figure, limit| figure < limit),
];

type Comparison = fn(f64, f64) -> bool;

/// Returns a figure of a form, or `None` if the form does not have it.
type Figure = fn(&Form) -> Option<f64>;

/// The figures with their names, and whether they are in bytes.
static FIGURES: [(&str, bool, Figure); 9] = [
    ("masters", false, |form| form.name.is_in_memory().then_some(form.servers as f64)),
    ("databases", false, |form| (!form.name.is_in_memory()).then_some(form.servers as f64)),
    ("memory", true, |form| form.resident_bytes),
    ("disk", true, |form| form.disk_bytes),
    ("wal", true, |form| form.wal_bytes_per_day),
    ("network", true, |form| form.network_bytes_per_second),
    ("cores", false, |form| Some(form.cores_at_peak)),
    ("transactions", false, |form| form.transactions_per_day),
    ("cost", false, |form| form.cost),
];

/// A condition such as `masters>8` or `memory>=100GB`, under which a plan exceeds a budget.
///
/// ```
/// use std::time::Duration;
///
/// use idempotent_operate::plan::{Condition, Constants, Plan, Workload};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let workload = Workload::new(100.0, Duration::from_secs(3_600));
/// let plan = Plan::of(&workload, &Constants::measured()?)?;
/// let condition: Condition = "memory>1TB".parse()?;
/// assert_eq!(condition.met_by(&plan)?, None);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Condition {
    text: String,
    name: &'static str,
    is_in_bytes: bool,
    figure: Figure,
    compare: Comparison,
    limit: f64,
}

impl FromStr for Condition {
    type Err = PlanError;

    fn from_str(text: &str) -> Result<Self, PlanError> {
        let refuse = |rule: String| PlanError::Condition { text: text.to_owned(), rule };
        let names = || FIGURES.map(|(name, ..)| name).join(", ");
        let found = OPERATORS.iter().find_map(|(sign, compare)| Some((text.split_once(*sign)?, *compare)));
        let Some(((name, limit), compare)) = found else {
            return Err(refuse(
                "expected a figure, `>`, `>=`, `<` or `<=`, and a limit, such as `masters>8`".to_owned(),
            ));
        };
        let named = FIGURES.iter().find(|(known, ..)| *known == name.trim());
        let Some((name, is_in_bytes, figure)) = named else {
            return Err(refuse(format!("`{}` is no figure; known are {}", name.trim(), names())));
        };
        let limit = limit.trim();
        let number = parse_bytes(limit).ok().filter(|_| *is_in_bytes || !limit.ends_with(char::is_alphabetic));
        let Some(number) = number else {
            let expected = if *is_in_bytes { "bytes, such as `100GB`" } else { "a number, such as `8`" };
            return Err(refuse(format!("the limit is `{limit}`: expected {expected}")));
        };
        Ok(Self { text: text.to_owned(), name, is_in_bytes: *is_in_bytes, figure: *figure, compare, limit: number })
    }
}

impl Condition {
    /// Returns a text with the smallest figure if the condition holds for each form that has the figure: no form is within the
    /// budget. Returns `None` if a form is.
    ///
    /// # Errors
    /// [`Condition`](PlanError::Condition) if no form of the plan has the figure.
    pub fn met_by(&self, plan: &Plan) -> Result<Option<String>, PlanError> {
        let figures: Vec<f64> = plan.forms.iter().filter_map(self.figure).collect();
        let Some(least) = figures.iter().copied().reduce(f64::min) else {
            let rule = match self.name {
                "cost" => "a plan has a cost with a price only: pass --price-gb, --price-core or --price-disk-gb",
                _ => "no form of this plan has the figure; change --engine",
            };
            return Err(PlanError::Condition { text: self.text.clone(), rule: rule.to_owned() });
        };
        let is_met = figures.iter().all(|figure| (self.compare)(*figure, self.limit));
        let text = if self.is_in_bytes { bytes(least) } else { count(least) };
        Ok(is_met.then(|| format!("`{}`: {} is {text} or more in each form", self.text, self.name)))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::plan::{Constants, Engine, Workload};

    fn plan(engine: Engine) -> Plan {
        let mut load = Workload::new(12_000.0, Duration::from_secs(86_400));
        load.engine = engine;
        Plan::of(&load, &Constants::measured().unwrap()).unwrap()
    }

    fn met(condition: &str, engine: Engine) -> bool {
        condition.parse::<Condition>().unwrap().met_by(&plan(engine)).unwrap().is_some()
    }

    #[test]
    fn a_condition_holds_if_no_form_is_within_the_budget() {
        assert!(met("masters>8", Engine::All), "only redis has masters");
        assert!(!met("masters > 1000", Engine::Redis));
        assert!(met("memory>=100GB", Engine::Redis));
        assert!(!met("memory<100GB", Engine::Redis));
        assert!(met("disk>100GB", Engine::Postgres));
        // Batches need few transactions, so one form is within the budget.
        assert!(!met("transactions>100000000", Engine::Postgres));
        assert!(met("transactions>1000000", Engine::All));
    }

    #[test]
    fn a_limit_that_is_met_exactly_is_exceeded_only_with_an_equals_sign() {
        let compare = |sign| OPERATORS.iter().find(|(known, _)| *known == sign).unwrap().1;
        for (sign, expected) in [
            (">", [false, false, true]),
            (">=", [false, true, true]),
            ("<", [true, false, false]),
            ("<=", [true, true, false]),
        ] {
            assert_eq!([1.0, 2.0, 3.0].map(|figure| compare(sign)(figure, 2.0)), expected, "{sign}");
        }
    }

    #[test]
    fn only_postgres_has_databases() {
        assert!(met("databases>0", Engine::Postgres));
        let databases: Condition = "databases>0".parse().unwrap();
        assert!(databases.met_by(&plan(Engine::Redis)).is_err());
    }

    #[test]
    fn a_condition_that_cannot_be_judged_is_refused_with_its_rule() {
        for (condition, rule) in [
            ("masters", "expected a figure"),
            ("mastres>8", "`mastres` is no figure; known are masters, databases"),
            ("masters>many", "`many`: expected a number"),
            ("masters>8GB", "`8GB`: expected a number"),
            ("memory>lots", "such as `100GB`"),
            ("masters==8", "expected a figure"),
        ] {
            let error = condition.parse::<Condition>().unwrap_err().to_string();
            assert!(error.contains(rule), "{condition}: {error}");
        }
        let cost: Condition = "cost>1".parse().unwrap();
        assert!(cost.met_by(&plan(Engine::All)).unwrap_err().to_string().contains("--price-gb"));
        let masters: Condition = "masters>1".parse().unwrap();
        assert!(masters.met_by(&plan(Engine::Postgres)).unwrap_err().to_string().contains("--engine"));
    }
}
