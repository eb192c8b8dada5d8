//! Capacity plans: how many servers, how much memory and how many processors a load needs.
//!
//! A [`Workload`] describes the load. [`Plan::of`] calculates each form in which stores can keep the records of this load, by the [`Constants`]
//! that the benchmarks of this project measured. The calculation is pure, and opens no connection.
//!
//! [`RecordSample`] describes the records of a running store, and [`Condition`] compares a plan with a budget.
//!
//! ```
//! use std::time::Duration;
//!
//! use idempotent_operate::plan::{Constants, Plan, Workload};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let workload = Workload::new(12_000.0, Duration::from_secs(86_400));
//! let plan = Plan::of(&workload, &Constants::measured()?)?;
//! for form in &plan.forms {
//!     println!("{}: {} servers", form.name.text(), form.servers);
//! }
//! # Ok(())
//! # }
//! ```
mod calculation;
mod condition;
mod constants;
mod error;
mod explanation;
mod form;
mod quantity;
mod sample;
mod text;
mod workload;

pub use self::calculation::Plan;
pub use self::condition::Condition;
pub use self::constants::Constants;
pub use self::error::PlanError;
pub use self::explanation::Step;
pub use self::form::{Form, FormName};
pub use self::quantity::{parse_bytes, parse_rate};
pub use self::sample::RecordSample;
pub use self::workload::{Engine, Prices, Workload};
