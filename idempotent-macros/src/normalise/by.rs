//! The source of the key (`by`): a key, an issued token or the arguments, and the arguments that are valid with each.
use proc_macro2::Span;
use quote::ToTokens;
use syn::{Error, Expr, Ident, Result};

use super::{By, Setting, said, word};
use crate::parse::Args;
use crate::suggest::{any_of, did_you_mean};
use crate::units::millis;

const WINDOW_IS_FOR_PARAM: &str = "`window` goes with `by = param`, where calls are told apart by what they say";
const TTL_IS_FOR_TOKENS: &str = "`ttl` goes with `by = token`, and is how long an unused token is good for";

/// Resolves `by`, and refuses arguments that are not valid with it.
pub(super) fn of(args: &Args) -> Result<By> {
    const KNOWN: [&str; 3] = ["key", "token", "param"];
    let Some(value) = &args.by else { return by_key(args) };
    match word(value).map(Ident::to_string).as_deref() {
        Some("key") => by_key(args),
        Some("token") => by_token(args, value),
        Some("param") => by_param(args, value),
        given => {
            let meant = did_you_mean(given.unwrap_or_default(), KNOWN);
            Err(Error::new_spanned(value, format!("`by` is {}{meant}", any_of(&KNOWN))))
        }
    }
}

/// Sets the policy settings that `by` implies. Both settings are explicit, because the executor's policy may differ.
pub(super) fn knobs(args: &Args, set: &mut impl FnMut(&'static str, Setting)) -> Result<()> {
    let given = args.by.as_ref().and_then(word);
    if !given.is_some_and(|word| word == "token" || word == "param") {
        return Ok(());
    }
    set("on_consumed", Setting::Word("OnConsumed", if args.replay.is_some() { "Replay" } else { "Refuse" }));
    match &args.window {
        Some(value) => set("window", Setting::Millis(millis("window", value)?)),
        None if given.is_some_and(|word| word == "param") => set("window", Setting::Window),
        None => {}
    }
    Ok(())
}

fn by_key(args: &Args) -> Result<By> {
    refuse(&args.window, || format!("{WINDOW_IS_FOR_PARAM}; how long a key is recognised is `retain`"))?;
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
    needs_key(args, "say what makes two calls the same, e.g. `key = order.id`")?;
    Ok(By::Key)
}

fn by_token(args: &Args, by: &Expr) -> Result<By> {
    needs_key(args, "say where the call's token is, e.g. `key = token`")?;
    refuse(&args.window, || {
        format!("{WINDOW_IS_FOR_PARAM}; a token that was used stays used, and an unused one is good for its `ttl`")
    })?;
    refuse(&args.prefix, || {
        "tokens lie in the executor's own namespace: leave `prefix` out, and set `ExecutorBuilder::namespace`".into()
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
        let text = "without the store nobody can tell a token from a guess: such a call is never run unprotected, so leave \
                    `on_store_error` out";
        return Err(Error::new_spanned(value, text));
    }
    if said(args.tenant.as_ref()).is_none() {
        let text = "`by = token` needs a `tenant`, the caller that the token was issued to, e.g. `tenant = user`: else \
                    everybody could spend everybody's. Where there is one caller only, give it a name, \
                    `tenant = \"all\"`, and issue its tokens to that";
        return Err(Error::new_spanned(by, text));
    }
    args.ttl.as_ref().map(|ttl| millis("ttl", ttl)).transpose().map(By::Token)
}

fn by_param(args: &Args, by: &Expr) -> Result<By> {
    refuse(&args.ttl, || format!("{TTL_IS_FOR_TOKENS}; how long an equal call counts as the same is `window`"))?;
    refuse(&args.retain, || {
        "with `by = param` an equal call counts as the same for its `window`, and no longer: say `window = \"5s\"` in place \
         of `retain`"
            .into()
    })?;
    refuse(&args.fingerprint, || {
        "with `by = param` what the call says is its key, so there is nothing left to compare: name all that counts in \
         `key = (a, b)`, and leave `fingerprint` out"
            .into()
    })?;
    Ok(By::Param(word(by).map_or_else(Span::call_site, Ident::span)))
}

fn needs_key(args: &Args, remedy: &str) -> Result<()> {
    match args.key {
        Some(_) => Ok(()),
        None => Err(Error::new(Span::call_site(), format!("missing `key`: {remedy}"))),
    }
}

fn refuse(given: &Option<impl ToTokens>, why: impl Fn() -> String) -> Result<()> {
    given.as_ref().map_or(Ok(()), |given| Err(Error::new_spanned(given, why())))
}
