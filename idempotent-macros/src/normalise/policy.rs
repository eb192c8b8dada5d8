//! The arguments that are settings of the policy.
use syn::{Error, Expr, ExprCall, ExprLit, ExprUnary, Ident, Lit, Result, UnOp};

use super::{PolicySetter, SettingValue, by, longest, order, word};
use crate::parse::AttributeArgs;
use crate::suggest::{any_of, did_you_mean};
use crate::units::{bytes, millis};

/// Resolves the settings of the policy.
pub(super) fn settings(args: &AttributeArgs) -> Result<Vec<PolicySetter>> {
    let mut policy_settings = Vec::new();
    let mut set = |setter, setting| policy_settings.push(PolicySetter { setter, setting });
    let time = |name, value: &Option<Expr>| value.as_ref().map(|value| millis(name, value)).transpose();

    let (lease, max_run) = (time("lease", &args.lease)?, time("max_run", &args.max_run)?);
    if let (Some(lease), Some(value)) = (lease, &args.lease) {
        longest("lease", value, lease)?;
        set("lease", SettingValue::Millis(lease));
    }
    if let Some(max_run) = max_run {
        set("max_run", SettingValue::Millis(max_run));
        if lease.is_some_and(|lease| max_run < lease) {
            let text = "`max_run` must not be shorter than the lease: it ends the renewals";
            return Err(Error::new_spanned(&args.max_run, text));
        }
    }
    by::policy_settings(args, &mut set)?;
    if let Some(value) = &args.retain {
        set("retain", retain(value, lease)?);
    }
    if let Some(value) = &args.max_retries {
        set("max_retries", count(value)?);
    }
    if let Some(value) = &args.on_in_flight {
        set("on_in_flight", on_in_flight(value)?);
    }
    if let Some(value) = &args.on_lease_lost {
        let variant = choice("on_lease_lost", value, &[("abort", "Abort"), ("finish", "Finish")])?;
        set("on_lease_lost", SettingValue::Word("OnLeaseLost", variant));
    }
    if let Some(value) = &args.on_expiry {
        let variant = choice("on_expiry", value, &[("takeover", "Takeover"), ("park", "Park")])?;
        set("on_expiry", SettingValue::Word("OnExpiry", variant));
    }
    if let Some(value) = &args.on_store_error {
        let variant = choice("on_store_error", value, &[("fail", "Fail"), ("run_unprotected", "RunUnprotected")])?;
        set("on_store_error", SettingValue::Word("OnStoreError", variant));
    }
    if let Some(value) = &args.on_broken_order {
        set("on_broken_order", order::on_broken(value)?);
    }
    if let Some(value) = &args.on_late {
        set("on_late", order::on_late(value)?);
    }
    if args.release_on_cancel.is_some() {
        set("release_on_cancel", SettingValue::Yes);
    }
    if let Some(value) = &args.max_result {
        set("max_result", SettingValue::Bytes(bytes("max_result", value)?));
    }
    Ok(policy_settings)
}

fn retain(value: &Expr, lease: Option<u64>) -> Result<SettingValue> {
    match (word(value), value) {
        (Some(word), _) if word == "forever" => return Ok(SettingValue::Forever),
        (Some(_), _) => {
            return Err(Error::new_spanned(value, "`retain` is a duration in quotes, e.g. \"7d\", or `forever`"));
        }
        (None, Expr::Lit(ExprLit { lit: Lit::Str(text), .. })) if text.value() == "forever" => {
            return Err(Error::new_spanned(value, "write `retain = forever` without quotes"));
        }
        _ => {}
    }
    let retain = millis("retain", value)?;
    if lease.is_some_and(|lease| lease >= retain) {
        let text = "the lease must be shorter than retention: a result is kept longer than a run may take";
        return Err(Error::new_spanned(value, text));
    }
    Ok(SettingValue::Millis(retain))
}

fn count(value: &Expr) -> Result<SettingValue> {
    let wrong = match value {
        Expr::Lit(ExprLit { lit: Lit::Int(number), .. }) if number.base10_parse::<u32>().is_ok() => None,
        Expr::Lit(ExprLit { lit: Lit::Int(_), .. }) => Some("fits 32 bits"),
        Expr::Unary(ExprUnary { op: UnOp::Neg(_), .. }) => Some("must be >= 0; 0 is one run without retries"),
        Expr::Lit(_) => Some("is a whole number, e.g. `max_retries = 16`"),
        _ => None,
    };
    match wrong {
        Some(wrong) => Err(Error::new_spanned(value, format!("`max_retries` {wrong}"))),
        None => Ok(SettingValue::Count(value.clone())),
    }
}

fn on_in_flight(value: &Expr) -> Result<SettingValue> {
    if let Expr::Call(ExprCall { func, args, .. }) = value
        && word(func).is_some_and(|word| word == "wait")
        && let (1, Some(max)) = (args.len(), args.first())
    {
        order::quoted("on_in_flight = wait", max)?;
        return longest("wait", max, millis("wait", max)?).map(SettingValue::Wait);
    }
    match word(value) {
        Some(word) if word == "retry" => Ok(SettingValue::Word("OnInFlight", "Retry")),
        Some(word) if word == "ack" => Ok(SettingValue::Word("OnInFlight", "Ack")),
        Some(word) if word == "wait" => {
            Err(Error::new_spanned(value, "`wait` needs a time limit: `on_in_flight = wait(\"2s\")`"))
        }
        _ => Err(Error::new_spanned(value, "`on_in_flight` is `retry`, `wait(\"2s\")` or `ack`")),
    }
}

fn choice(name: &str, value: &Expr, choices: &[(&str, &'static str)]) -> Result<&'static str> {
    let given = word(value).map(Ident::to_string).unwrap_or_default();
    if let Some((_, variant)) = choices.iter().find(|(choice, _)| *choice == given) {
        return Ok(variant);
    }
    let words: Vec<_> = choices.iter().map(|(choice, _)| *choice).collect();
    let meant = did_you_mean(&given, words.iter().copied());
    Err(Error::new_spanned(value, format!("`{name}` is {}{meant}", any_of(&words))))
}
