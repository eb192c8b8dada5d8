//! Normalisation: resolves words and units in the arguments, and refuses contradictions.
mod by;
mod member;
mod order;
mod policy;
mod scene;

use proc_macro2::Span;
use syn::{Error, Expr, ExprLit, ExprPath, Ident, Lit, LitStr, Path, Result, Type};

pub(crate) use self::member::BlockMember;
use crate::batch::BatchParameter;
use crate::parse::AttributeArgs;
use crate::transaction::TransactionParameter;

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
    pub(crate) describe: Option<Expr>,
    pub(crate) detach: bool,
    pub(crate) transaction: Option<TransactionParameter>,
    pub(crate) batch: Option<BatchParameter>,
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
    /// The value of a `KeyStrategy`.
    Strategy(Box<Expr>),
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
        args.batch.iter().try_for_each(|batch| batch.check(&args))?;
        let policy_settings = policy::settings(&args)?;
        let by = by::of(&args)?;
        let scene = match &args.scene {
            Some(value) => scene::resolve(value)?,
            None if matches!(by, KeySource::Key | KeySource::Strategy(_)) => Scene::Mq,
            None => Scene::Rest,
        };
        scene::acks_only_deliveries(&args, &scene)?;
        for (name, text) in [("scope", &args.scope), ("prefix", &args.prefix), ("message", &args.message)] {
            text.iter().try_for_each(|text| is_text(name, text))?;
        }
        for (name, rule, over) in [
            ("failed_if", &args.failed_if, "value"),
            ("permanent", &args.permanent, "error"),
            ("describe", &args.describe, "error"),
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
            describe: args.describe,
            detach: args.detach.is_some(),
            transaction,
            batch: args.batch,
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
    if !fingerprint && matches!(by, KeySource::Key | KeySource::Strategy(_)) {
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
        (Some(_), Some(unprotected)) => {
            Err(Error::new_spanned(unprotected, "`transaction` needs the store: remove `on_store_error`"))
        }
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

/// Returns the word if the expression is a path with one segment.
fn word(value: &Expr) -> Option<&Ident> {
    match value {
        Expr::Path(ExprPath { path, qself: None, .. }) => path.get_ident(),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
