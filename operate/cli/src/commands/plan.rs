//! The command `plan`: servers, memory and processors for a load.
use std::io::{self, Write};

use idempotent_operate::plan::{Constants, Plan, PlanError, Workload};

use crate::arguments::{Format, GlobalOptions, PlanArguments};
use crate::failure::Failure;
use crate::output;

/// A workload that was read from a running store, and a note about the store.
type Observed = (Workload, String);

pub(super) async fn plan(global: &GlobalOptions, arguments: &PlanArguments) -> anyhow::Result<()> {
    let (load, note) = match &arguments.from {
        Some(url) => Some(observed(global, url).await?),
        None => None,
    }
    .unzip();
    let usage = |error: PlanError| Failure::Usage(error.to_string());
    let mut plan = Plan::of(&arguments.workload(load), &Constants::measured()?).map_err(usage)?;
    plan.notes.extend(note);
    let met: Result<Vec<_>, _> = arguments.fail_if.iter().map(|condition| condition.met_by(&plan)).collect();
    let met: Vec<_> = met.map_err(usage)?.into_iter().flatten().collect();
    print(global, arguments, &plan)?;
    if met.is_empty() { Ok(()) } else { Err(Failure::Refused(met.join("; ")).into()) }
}

fn print(global: &GlobalOptions, arguments: &PlanArguments, plan: &Plan) -> io::Result<()> {
    let mut out = io::stdout().lock();
    if arguments.json || output::format(global.output) != Format::Table {
        return writeln!(out, "{}", plan.json(arguments.explain));
    }
    out.write_all(plan.text().as_bytes())?;
    if arguments.explain {
        out.write_all(plan.explanation().as_bytes())?;
    }
    Ok(())
}

/// The number of records that a sample reads.
#[cfg(feature = "redis")]
const SAMPLE: usize = 10_000;

/// Reads the workload of a store in Redis or Valkey.
#[cfg(feature = "redis")]
async fn observed(global: &GlobalOptions, from: &str) -> anyhow::Result<Observed> {
    use idempotent_operate::plan::RecordSample;

    use super::{OPENING, within};
    use crate::backend::Backend;
    use crate::target;

    let url = target::read_url(Some(from), "--from names no URL")?;
    let name = idempotent::connect(&url).to_string();
    if Backend::of(&url) != Some(Backend::Redis) {
        let why = format!("`{name}` is no store in Redis or Valkey: expected a URL such as redis://localhost");
        return Err(Failure::Usage(why).into());
    }
    let builder = idempotent::RedisStore::builder(&url).namespace(&global.namespace).read_only(true);
    let store = within(Some(OPENING), async { Ok(builder.connect().await?) }).await?;
    let memory = store.memory().await?;
    let sample = RecordSample::take(&store, &global.namespace, SAMPLE).await?.ok_or_else(|| {
        Failure::NotFound(format!("{name} has no consumed record in the namespace `{}`", global.namespace))
    })?;
    let mut load = sample.workload(memory.keys);
    load.resident = resident(memory.resident_bytes, memory.used_bytes);
    let age = u64::try_from(sample.age.as_millis()).unwrap_or(u64::MAX);
    let note = format!(
        "{name} has {} keys in {:.1} MB used and {:.1} MB resident; the oldest of {} sampled records is {} old",
        memory.keys,
        memory.used_bytes as f64 / 1e6,
        memory.resident_bytes as f64 / 1e6,
        sample.records,
        idempotent_operate::short_time(age)
    );
    Ok((load, note))
}

#[cfg(not(feature = "redis"))]
async fn observed(_: &GlobalOptions, _: &str) -> anyhow::Result<Observed> {
    Err(Failure::Usage("this program was built without Redis, which --from reads".into()).into())
}

/// Returns the resident memory for each used byte, 1 to 100 as in a plan.
#[cfg(feature = "redis")]
fn resident(resident: u64, used: u64) -> f64 {
    (resident as f64 / used.max(1) as f64).clamp(1.0, 100.0)
}

#[cfg(all(test, feature = "redis"))]
mod tests {
    use super::resident;

    #[test]
    fn the_resident_memory_is_a_multiple_of_the_used_one() {
        let factors = [(300, 200), (100, 200), (300, 0), (1, 0)].map(|(bytes, used)| resident(bytes, used));
        assert_eq!(factors.map(|factor| (factor * 10.0).round()), [15.0, 10.0, 1_000.0, 10.0]);
    }
}
