//! The commands `forget` and `release`.
use idempotent::FencingToken;
use idempotent_operate::{RecordSummary, Repair, RepairResult, Repairer, StateName, escaped};

use super::keys::absent;
use super::{open, open_for_writing};
use crate::arguments::{GlobalOptions, RepairArguments, RepairOptions};
use crate::confirm::confirm;
use crate::failure::Failure;
use crate::output;
use crate::target::{Access, Target};

pub(super) async fn repair(global: &GlobalOptions, arguments: &RepairArguments, repair: Repair) -> anyhow::Result<()> {
    let key = arguments.key.address(&global.namespace)?.key()?;
    let options = &arguments.options;
    let target = match options.change.dry_run {
        true => open(global).await?,
        false => open_for_writing(global, Access::Write).await?,
    };
    let repairer = repairer(&target, options)?;
    let record = idempotent_operate::inspect(&*target.store, &key).await?.ok_or_else(|| absent(key.as_str()))?;
    check(&record, arguments.fencing, repair)?;
    if options.change.dry_run {
        output::record(output::format(global.output), &record)?;
        output::note(format_args!("dry run: `{}` would {} this key", key.as_str(), repair.name()));
        return Ok(());
    }
    if !options.change.yes {
        output::record(crate::arguments::Format::Table, &record)?;
        let warning = match repair {
            Repair::Release => "The owner may still be running, and its effect may happen.",
            _ => "The next duplicate of this key runs the handler again.",
        };
        confirm(warning).await?;
    }
    match repairer.apply(repair, &key, FencingToken(record.fencing)).await? {
        RepairResult::Done => {
            output::note("done: the key can be claimed");
            Ok(())
        }
        RepairResult::Changed { now } => {
            let why = format!("the key has changed meanwhile and is {now}; nothing was changed");
            Err(Failure::Refused(why).into())
        }
        _ => Err(Failure::Refused("the store gave an unknown answer".into()).into()),
    }
}

/// Refuses a repair that the store would refuse, with the remedy.
fn check(record: &RecordSummary, fencing: Option<u64>, repair: Repair) -> anyhow::Result<()> {
    if let Some(seen) = fencing.filter(|seen| *seen != record.fencing) {
        let why = format!("the fencing number is {} now, not {seen}; nothing was changed", record.fencing);
        return Err(Failure::Refused(why).into());
    }
    let why = match (repair, record.state) {
        (Repair::Forget, StateName::Consuming) => {
            let owner = record.owner.as_deref().map(escaped).unwrap_or_default();
            format!("{owner}… holds the key: wait for its lease, or use `idempotent release`")
        }
        (Repair::Release, StateName::Consuming)
        | (Repair::Forget, StateName::Consumed | StateName::Failed | StateName::Dead) => {
            return Ok(());
        }
        (_, StateName::Vacant) => {
            let error = record.error.as_deref().map_or_else(String::new, |error| format!(" ({})", escaped(error)));
            format!(
                "the key is vacant{error}, so its next delivery runs: send or redrive its message, no repair is needed"
            )
        }
        _ => format!("the key is {}: use `idempotent forget`", record.state.text()),
    };
    Err(Failure::Refused(why).into())
}

fn repairer(target: &Target, options: &RepairOptions) -> anyhow::Result<Repairer> {
    let (by, reason) = options.change.author()?;
    let repairer = Repairer::new(target.store.clone(), options.change.audit()?, (&by, reason), "cli", &target.name)?;
    Ok(repairer.retention(options.memory))
}
