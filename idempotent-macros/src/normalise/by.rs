//! The source of the key (`by`): a key, an issued token, the arguments or a strategy. Each source allows different
//! arguments.
use proc_macro2::Span;
use quote::ToTokens;
use syn::{Error, Expr, Ident, Result};

use super::{KeySource, SettingValue, given, word};
use crate::parse::AttributeArgs;
use crate::suggest::{any_of, did_you_mean};
use crate::units::millis;

const WINDOW_IS_FOR_PARAM: &str = "`window` requires `by = param`, where the arguments identify a call";
const TTL_IS_FOR_TOKENS: &str = "`ttl` goes with `by = token`, and is how long an unused token is good for";

/// Resolves `by`, and refuses arguments that are not valid with it.
pub(super) fn of(args: &AttributeArgs) -> Result<KeySource> {
    const KNOWN: [&str; 3] = ["key", "token", "param"];
    let Some(value) = &args.by else { return by_key(args) };
    match word(value).map(Ident::to_string).as_deref() {
        Some("key") => by_key(args),
        Some("token") => by_token(args, value),
        Some("param") => by_param(args, value),
        None if !matches!(value, Expr::Lit(_) | Expr::Tuple(_)) => by_strategy(args, value),
        Some(name) if !name.starts_with(char::is_lowercase) => by_strategy(args, value),
        given => {
            let meant = did_you_mean(given.unwrap_or_default(), KNOWN);
            let text = format!(
                "`by` is {}, or the value of a `KeyStrategy`, e.g. `ByEvent` or `self.strategy`",
                any_of(&KNOWN)
            );
            Err(Error::new_spanned(value, text + &meant))
        }
    }
}

fn by_strategy(args: &AttributeArgs, by: &Expr) -> Result<KeySource> {
    if args.key.is_none() {
        let text = "missing `key`: name the argument from which the strategy derives the key, e.g. `key = order`";
        return Err(Error::new_spanned(by, text));
    }
    by_key(args)?;
    Ok(KeySource::Strategy(Box::new(by.clone())))
}

/// Sets the policy settings that `by` implies. Both settings are explicit, because the executor's policy may differ.
pub(super) fn policy_settings(args: &AttributeArgs, set: &mut impl FnMut(&'static str, SettingValue)) -> Result<()> {
    let given = args.by.as_ref().and_then(word);
    if !given.is_some_and(|word| word == "token" || word == "param") {
        return Ok(());
    }
    set("on_consumed", SettingValue::Word("OnConsumed", if args.replay.is_some() { "Replay" } else { "Refuse" }));
    match &args.window {
        Some(value) => set("window", SettingValue::Millis(millis("window", value)?)),
        None if given.is_some_and(|word| word == "param") => set("window", SettingValue::Window),
        None => {}
    }
    Ok(())
}

fn by_key(args: &AttributeArgs) -> Result<KeySource> {
    refuse(&args.window, || format!("{WINDOW_IS_FOR_PARAM}; for the time that a key is retained, use `retain`"))?;
    refuse(&args.ttl, || {
        format!(
            "{TTL_IS_FOR_TOKENS}; for a key say `lease` (how long a run may hold it) or `retain` (how long its result is \
             kept)"
        )
    })?;
    refuse(&args.replay, || {
        "`replay` goes with `by = token` and `by = param`: a duplicate of a key gets the recorded result anyway, so leave \
         it out"
            .into()
    })?;
    needs_key(args, "name the value that identifies the call, e.g. `key = order.id`")?;
    Ok(KeySource::Key)
}

fn by_token(args: &AttributeArgs, by: &Expr) -> Result<KeySource> {
    needs_key(args, "say where the call's token is, e.g. `key = token`")?;
    refuse(&args.window, || {
        format!("{WINDOW_IS_FOR_PARAM}; an unused token expires after its `ttl`, and a used token stays used")
    })?;
    refuse(&args.prefix, || {
        "tokens use the executor's namespace: remove `prefix`, and set `ExecutorBuilder::namespace`".into()
    })?;
    if let Some(scene) = &args.scene
        && word(scene).is_none_or(|word| word != "rest")
    {
        return Err(Error::new_spanned(
            scene,
            "tokens are issued for `scene = rest`, which is their default: leave it out",
        ));
    }
    if let Some(value) = &args.on_store_error
        && word(value).is_some_and(|word| word == "run_unprotected")
    {
        let text = "a token cannot be verified without the store, so such a call never runs unprotected: leave \
                    `on_store_error` out";
        return Err(Error::new_spanned(value, text));
    }
    if given(args.tenant.as_ref()).is_none() {
        let text = "`by = token` needs a `tenant`, the caller that the token was issued to, e.g. `tenant = user`: without it, \
                    any caller could use the tokens of others. If there is only one caller, name it, `tenant = \"all\"`, and issue its tokens to that name";
        return Err(Error::new_spanned(by, text));
    }
    args.ttl.as_ref().map(|ttl| millis("ttl", ttl)).transpose().map(KeySource::Token)
}

fn by_param(args: &AttributeArgs, by: &Expr) -> Result<KeySource> {
    refuse(&args.ttl, || format!("{TTL_IS_FOR_TOKENS}; for the time of `by = param`, use `window`"))?;
    refuse(&args.retain, || {
        "`by = param` deduplicates within its `window` only: use `window = \"5s\"` instead of `retain`".into()
    })?;
    refuse(&args.fingerprint, || {
        "with `by = param` the arguments are the key, so there is nothing left to compare: name all \
         values that count in `key = (a, b)`, and leave `fingerprint` out"
            .into()
    })?;
    Ok(KeySource::Param(word(by).map_or_else(Span::call_site, Ident::span)))
}

fn needs_key(args: &AttributeArgs, remedy: &str) -> Result<()> {
    match args.key {
        Some(_) => Ok(()),
        None => Err(Error::new(Span::call_site(), format!("missing `key`: {remedy}"))),
    }
}

fn refuse(given: &Option<impl ToTokens>, why: impl Fn() -> String) -> Result<()> {
    given.as_ref().map_or(Ok(()), |given| Err(Error::new_spanned(given, why())))
}
