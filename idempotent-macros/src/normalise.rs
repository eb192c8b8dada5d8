//! Normalisation: resolves words and units in the arguments, and refuses contradictions.
mod by;
mod member;
mod order;

use proc_macro2::Span;
use syn::{Error, Expr, ExprCall, ExprLit, ExprPath, ExprUnary, Ident, Lit, LitStr, Path, Result, Type, UnOp};

pub(crate) use self::member::BlockMember;
use crate::parse::AttributeArgs;
use crate::suggest::{any_of, did_you_mean};
use crate::transaction::TransactionParameter;
use crate::units::{bytes, millis};

/// The normalised arguments of the attribute, ready for code generation.
pub(crate) struct AttributePlan {
    pub(crate) krate: Option<Path>,
    pub(crate) by: KeySource,
    pub(crate) scene: Scene,
    pub(crate) scope: Option<Expr>,
    pub(crate) prefix: Option<Expr>,
    /// The key, or `None` if all arguments are the key: `by = param` alone.
    pub(crate) key: Option<Expr>,
    pub(crate) order: Option<OrderPosition>,
    pub(crate) tenant: Option<Expr>,
    pub(crate) fingerprint: Option<Expr>,
    pub(crate) message: Option<Expr>,
    pub(crate) with: Option<Expr>,
    pub(crate) policy_settings: Vec<PolicySetter>,
    pub(crate) codec: Option<Type>,
    pub(crate) reply: Option<Type>,
    pub(crate) reject: Option<Expr>,
    pub(crate) failed_if: Option<Expr>,
    pub(crate) permanent: Option<Expr>,
    pub(crate) detach: bool,
    pub(crate) transaction: Option<TransactionParameter>,
    pub(crate) member: Option<BlockMember>,
}

/// The position of the call in an order.
pub(crate) enum OrderPosition {
    After(Expr),
    /// The stream, and the number within it.
    Sequence(Expr, Expr),
}

impl OrderPosition {
    /// Returns the name of the argument, and the first expression of its value.
    pub(crate) fn argument(&self) -> (&'static str, &Expr) {
        match self {
            Self::After(after) => ("after", after),
            Self::Sequence(stream, _) => ("sequence", stream),
        }
    }
}

/// The source of the key.
pub(crate) enum KeySource {
    Key,
    /// The validity of a token in milliseconds, if it is given.
    Token(Option<u64>),
    /// The location of the word `param`.
    Param(Span),
}

pub(crate) enum Scene {
    Mq,
    Rest,
    Named(LitStr),
}

/// The call of one setter of the policy.
pub(crate) struct PolicySetter {
    pub(crate) setter: &'static str,
    pub(crate) setting: SettingValue,
}

pub(crate) enum SettingValue {
    Millis(u64),
    Forever,
    /// The core's default for `by = param`.
    Window,
    Count(Expr),
    Bytes(u64),
    /// An enum and its variant, such as `OnExpiry` and `Park`.
    Word(&'static str, &'static str),
    Wait(u64),
    /// A variant of `OnBrokenOrder`, and its time in milliseconds.
    BrokenOrder(&'static str, u64),
    Yes,
}

impl AttributePlan {
    pub(crate) fn new(args: AttributeArgs) -> Result<Self> {
        member::refuse_skip(&args)?;
        let policy_settings = policy_settings(&args)?;
        let by = by::of(&args)?;
        let scene = match &args.scene {
            Some(value) => scene(value)?,
            None if matches!(by, KeySource::Key) => Scene::Mq,
            None => Scene::Rest,
        };
        acks_only_deliveries(&args, &scene)?;
        for (name, text) in [("scope", &args.scope), ("prefix", &args.prefix), ("message", &args.message)] {
            text.iter().try_for_each(|text| is_text(name, text))?;
        }
        for (name, rule, over) in [
            ("failed_if", &args.failed_if, "value"),
            ("permanent", &args.permanent, "error"),
            ("reject", &args.reject, "rejection"),
        ] {
            rule.iter().try_for_each(|rule| is_rule(name, rule, over))?;
        }
        args.key.iter().try_for_each(|key| not_empty("key", key))?;
        let (tenant, fingerprint) = (given(args.tenant.as_ref()), given(args.fingerprint.as_ref()));
        if let (Scene::Rest, Some(reply)) = (&scene, &args.reply) {
            endpoint(reply, &by, args.tenant.is_some(), args.fingerprint.is_some())?;
        }
        let order = order::check(&args, &by)?;
        let transaction = transaction(&args)?;
        Ok(Self {
            krate: args.krate,
            by,
            scene,
            scope: args.scope,
            prefix: args.prefix,
            key: args.key,
            order,
            tenant,
            fingerprint,
            message: args.message,
            with: args.with,
            policy_settings,
            codec: args.codec,
            reply: args.reply,
            reject: args.reject,
            failed_if: args.failed_if,
            permanent: args.permanent,
            detach: args.detach.is_some(),
            transaction,
            member: None,
        })
    }
}

/// Returns the value of an argument, unless the value is `()`, which declares that there is none.
fn given(value: Option<&Expr>) -> Option<Expr> {
    value.filter(|value| !matches!(value, Expr::Tuple(tuple) if tuple.elems.is_empty())).cloned()
}

/// Checks that an HTTP endpoint declares its tenant and its fingerprint.
///
/// If one is omitted by mistake, a caller can read the response to another caller, or to another request.
fn endpoint(reply: &Type, by: &KeySource, tenant: bool, fingerprint: bool) -> Result<()> {
    if !tenant {
        return Err(Error::new_spanned(
            reply,
            "`tenant` is missing: equal keys of two callers would be one key, and a caller would read the other's answer; \
             name the caller, e.g. `tenant = user.id`, or write `tenant = ()` if all callers share their keys",
        ));
    }
    if !fingerprint && matches!(by, KeySource::Key) {
        return Err(Error::new_spanned(
            reply,
            "`fingerprint` is missing: the same key with another request would get the first answer; write \
             `fingerprint = request` with the argument `WholeRequest(Json(order), request): WholeRequest<Json<Order>>`, or \
             name what counts, e.g. `fingerprint = order`, or write `fingerprint = ()` if nothing does",
        ));
    }
    Ok(())
}

/// Resolves `transaction`, which excludes `run_unprotected`: without the store there is no transaction.
fn transaction(args: &AttributeArgs) -> Result<Option<TransactionParameter>> {
    let unprotected = args.on_store_error.as_ref().and_then(word).filter(|word| *word == "run_unprotected");
    match (&args.transaction, unprotected) {
        (Some(_), Some(unprotected)) => Err(Error::new_spanned(
            unprotected,
            "a run in a transaction needs the store, which begins it: leave `on_store_error` out",
        )),
        (value, _) => value.as_ref().map(TransactionParameter::of).transpose(),
    }
}

fn is_text(name: &str, value: &Expr) -> Result<()> {
    match value {
        Expr::Lit(ExprLit { lit: Lit::Str(_), .. }) => not_empty(name, value),
        Expr::Lit(_) => Err(Error::new_spanned(value, format!("`{name}` is text in quotes: `{name} = \"…\"`"))),
        _ => Ok(()),
    }
}

/// Refuses a literal as a rule: `permanent = true` does not specify which errors are permanent.
fn is_rule(name: &str, value: &Expr, over: &str) -> Result<()> {
    match value {
        Expr::Lit(_) => {
            let text = format!("`{name}` is a closure over the {over}: `{name} = |{over}| …`");
            Err(Error::new_spanned(value, text))
        }
        _ => Ok(()),
    }
}

/// Refuses an empty literal, alone or in a tuple. Otherwise the key would fail at run time.
fn not_empty(name: &str, value: &Expr) -> Result<()> {
    let empty = match value {
        Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => text.value().is_empty(),
        Expr::Tuple(tuple) => {
            tuple.elems.iter().try_for_each(|part| not_empty(name, part))?;
            tuple.elems.is_empty()
        }
        Expr::Paren(paren) => return not_empty(name, &paren.expr),
        Expr::Group(group) => return not_empty(name, &group.expr),
        Expr::Reference(reference) => return not_empty(name, &reference.expr),
        _ => false,
    };
    if empty { Err(Error::new_spanned(value, format!("{name} must not be empty"))) } else { Ok(()) }
}

/// Refuses a time longer than the core's maximum for a lease or a wait.
fn longest(name: &str, value: &Expr, millis: u64) -> Result<u64> {
    const LONGEST: u64 = 30 * 24 * 3_600_000;
    match millis {
        0..=LONGEST => Ok(millis),
        _ => Err(Error::new_spanned(value, format!("`{name}` must be 1 ms … 30 days"))),
    }
}

fn policy_settings(args: &AttributeArgs) -> Result<Vec<PolicySetter>> {
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
            Err(Error::new_spanned(value, "say how long a duplicate may wait: `on_in_flight = wait(\"2s\")`"))
        }
        _ => Err(Error::new_spanned(value, "`on_in_flight` is `retry`, `wait(\"2s\")` or `ack`")),
    }
}

/// Checks that `on_in_flight = ack` is for messages: an HTTP request is not resent by an outbox.
fn acks_only_deliveries(args: &AttributeArgs, scene: &Scene) -> Result<()> {
    match (&args.on_in_flight, scene) {
        (Some(value), Scene::Rest) if word(value).is_some_and(|word| word == "ack") => Err(Error::new_spanned(
            value,
            "`on_in_flight = ack` is for messages: an outbox resends a message whose run crashed, but no one resends a \
             request; use `retry` or `wait(\"2s\")`",
        )),
        _ => Ok(()),
    }
}

/// Resolves the scene: `mq` and `rest` are words, a string names a custom scene.
fn scene(value: &Expr) -> Result<Scene> {
    const KNOWN: [&str; 2] = ["mq", "rest"];
    let wrong = |text: String| Err(Error::new_spanned(value, text));
    if let Expr::Lit(ExprLit { lit: Lit::Str(name), .. }) = value {
        return match name.value().as_str() {
            "" => wrong("scene must not be empty".into()),
            known if KNOWN.contains(&known) => wrong(format!("write `scene = {known}` without quotes")),
            // `"MQ"` and `"rset"` would be custom scenes with different defaults.
            other => match KNOWN.iter().find(|known| letters(known) == letters(other)) {
                Some(known) => wrong(format!(
                    "did you mean `scene = {known}`, without quotes? A scene of your own needs another name: `{other}` is \
                     taken for `{known}`"
                )),
                None => Ok(Scene::Named(name.clone())),
            },
        };
    }
    match word(value).map(Ident::to_string).as_deref() {
        Some("mq") => Ok(Scene::Mq),
        Some("rest") => Ok(Scene::Rest),
        Some(other) => {
            let meant = did_you_mean(other, KNOWN);
            wrong(format!(
                "unknown scene `{other}`{meant}; known: {}, or a name of your own in quotes: `scene = \"{other}\"`",
                any_of(&KNOWN)
            ))
        }
        None => wrong(format!("`scene` is {}, or a name of your own in quotes: `scene = \"billing\"`", any_of(&KNOWN))),
    }
}

/// Returns the letters of a word in lower case, sorted.
fn letters(word: &str) -> Vec<char> {
    let mut letters: Vec<_> = word.chars().filter(|char| char.is_alphanumeric()).flat_map(char::to_lowercase).collect();
    letters.sort_unstable();
    letters
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

/// Returns the word if the expression is a path with one segment.
fn word(value: &Expr) -> Option<&Ident> {
    match value {
        Expr::Path(ExprPath { path, qself: None, .. }) => path.get_ident(),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
