//! Checks of names in the attribute's expressions. A name must be an argument of the function. The errors use these
//! terms, while rustc would report missing values.
pub(crate) mod arguments;
mod constant;
pub(crate) mod generic;

use proc_macro2::Ident;
use syn::ext::IdentExt;
use syn::visit::{self, Visit};
use syn::{Error, Expr, ExprPath, ExprReturn, ExprTry, FnArg, Item, Macro, Pat, PatIdent, Result};

use crate::batch::BatchParameter;
use crate::expand::boxed;
use crate::item::AnnotatedFunction;
use crate::normalise::{AttributePlan, KeySource, OrderPosition};
use crate::suggest::did_you_mean;

/// Checks every expression that is evaluated before the body.
pub(crate) fn check(plan: &AttributePlan, function: &AnnotatedFunction) -> Result<()> {
    let scope = ArgumentScope::of(function);
    // The expressions are evaluated for each item, except `with`.
    let item_scope = plan.batch.as_ref().map(|batch| scope.of_item(batch));
    let (call_scope, scope) = (&scope, item_scope.as_ref().unwrap_or(&scope));
    let explain = |name: &'static str| move |error| plan.explain(name, error);
    if let Some(key) = &plan.key {
        constant::refuse_literals(key, scope).map_err(explain("key"))?;
        scope.check("key", key).map_err(explain("key"))?;
        // A key that is equal for all items would handle one of them only.
        let alone = plan
            .batch
            .as_ref()
            .map(|batch| ArgumentScope { names: vec![batch.item.unraw().to_string()], ..scope.clone() });
        constant::refuse_others(key, alone.as_ref().unwrap_or(scope)).map_err(explain("key"))?;
    }
    for (name, text) in [("scope", &plan.scope), ("prefix", &plan.prefix), ("message", &plan.message)] {
        text.iter().try_for_each(|text| scope.check_text(name, text)).map_err(explain(name))?;
    }
    let (after, stream, number) = match &plan.order {
        Some(OrderPosition::After(after)) => (Some(after), None, None),
        Some(OrderPosition::Sequence(stream, number)) => (None, Some(stream), Some(number)),
        None => (None, None, None),
    };
    for (name, expr) in [
        ("after", after),
        ("sequence", stream),
        ("sequence", number),
        ("tenant", plan.tenant.as_ref()),
        ("fingerprint", plan.fingerprint.as_ref()),
        ("scope", plan.scope.as_ref()),
        ("prefix", plan.prefix.as_ref()),
        ("message", plan.message.as_ref()),
    ] {
        expr.iter().try_for_each(|expr| scope.check(name, expr)).map_err(explain(name))?;
    }
    if let KeySource::Strategy(by) = &plan.by {
        scope.check("by", by).map_err(explain("by"))?;
    }
    plan.with.iter().try_for_each(|with| call_scope.check("with", with)).map_err(explain("with"))?;
    Ok(())
}

/// The names that the function brings into scope.
#[derive(Clone)]
struct ArgumentScope<'a> {
    function: &'a AnnotatedFunction,
    names: Vec<String>,
    /// True if a macro in a pattern may bind further names.
    open: bool,
}

impl<'a> ArgumentScope<'a> {
    fn of(function: &'a AnnotatedFunction) -> Self {
        let bindings = PatternBindings::of_arguments(function);
        let mut names = bindings.texts();
        if function.sig.asyncness.is_none() {
            names.sort();
            names.dedup();
        }
        Self { function, names, open: bindings.open }
    }

    /// Returns the names for one item of a batch: the item instead of the list.
    fn of_item(&self, batch: &BatchParameter) -> Self {
        let list = batch.list.unraw().to_string();
        let others = self.names.iter().filter(|name| **name != list).cloned();
        let names = std::iter::once(batch.item.unraw().to_string()).chain(others).collect();
        Self { function: self.function, names, open: self.open }
    }

    fn check(&self, argument: &'static str, expr: &Expr) -> Result<()> {
        let mut bound = PatternBindings::default();
        bound.visit_expr(expr);
        let mut uses = NameChecker { scope: self, argument, bound: bound.texts(), inner: 0, error: None };
        uses.visit_expr(expr);
        uses.error.map_or(Ok(()), Err)
    }

    /// Checks an argument that is usually text: a bare word has probably lost its quotes.
    fn check_text(&self, argument: &str, expr: &Expr) -> Result<()> {
        let Some(ident) = bare(expr) else { return Ok(()) };
        let name = ident.unraw().to_string();
        if !is_local(&name) || name == "self" {
            return Ok(());
        }
        if !self.knows(&name) {
            let meant = did_you_mean(&name, self.names.iter().map(String::as_str));
            let text = format!("`{argument}` is text in quotes: `{argument} = \"{name}\"`{meant}");
            return Err(Error::new_spanned(expr, text));
        }
        if argument == "scope" && self.names.contains(&name) {
            let text = format!(
                "`scope` must not depend on the call: the keys of one handler would be scattered. It is text in \
                 quotes, `scope = \"…\"`; a value that distinguishes two calls is part of the key: `key = (…, {name})`, or is \
                 the `tenant`"
            );
            return Err(Error::new_spanned(expr, text));
        }
        Ok(())
    }

    fn knows(&self, name: &str) -> bool {
        let generic = |ident: &Ident| ident == name;
        self.open
            || self.names.iter().any(|known| known == name)
            || self.function.sig.generics.const_params().any(|param| generic(&param.ident))
    }

    fn available(&self) -> String {
        let this = self.function.has_receiver().then(|| "`self`".to_owned());
        let available: Vec<_> = this.into_iter().chain(self.names.iter().map(|name| format!("`{name}`"))).collect();
        if available.is_empty() { "none".into() } else { available.join(", ") }
    }

    fn missing(&self, ident: &Ident) -> Error {
        let name = ident.unraw().to_string();
        let method = self.function.has_receiver();
        let available = self.available();
        let meant = did_you_mean(&name, self.names.iter().map(String::as_str));
        let field = if method && meant.is_empty() { format!("; for a field say `self.{name}`") } else { String::new() };
        Error::new(ident.span(), format!("no argument named `{name}`{meant}{field}\navailable: {available}"))
    }
}

/// Returns the name if the expression is a bare name, or a reference to one.
fn bare(expr: &Expr) -> Option<&Ident> {
    match expr {
        Expr::Path(path) if path.qself.is_none() => path.path.get_ident(),
        Expr::Reference(reference) => bare(&reference.expr),
        Expr::Paren(paren) => bare(&paren.expr),
        Expr::Group(group) => bare(&group.expr),
        _ => None,
    }
}

/// Returns whether the name is written like an argument. Constants and unit structs begin with a capital letter.
fn is_local(name: &str) -> bool {
    name.starts_with(|first: char| first.is_lowercase() || first == '_')
}

/// A visitor that collects every name bound by a pattern.
#[derive(Default)]
pub(crate) struct PatternBindings {
    names: Vec<Ident>,
    /// True if a macro in a pattern may bind further names.
    open: bool,
}

impl PatternBindings {
    /// Collects the names of the arguments, also those of a function that `async_trait` has rewritten.
    fn of_arguments(function: &AnnotatedFunction) -> Self {
        let mut bindings = Self::default();
        for input in &function.sig.inputs {
            if let FnArg::Typed(arg) = input {
                bindings.visit_pat(&arg.pat);
            }
        }
        if function.sig.asyncness.is_none() {
            boxed::patterns(&function.body).iter().for_each(|pat| bindings.visit_pat(pat));
            bindings.names.retain(|name| !name.unraw().to_string().starts_with("__"));
        }
        bindings
    }

    pub(crate) fn texts(&self) -> Vec<String> {
        self.names.iter().map(|name| name.unraw().to_string()).collect()
    }
}

impl Visit<'_> for PatternBindings {
    fn visit_pat_ident(&mut self, pat: &PatIdent) {
        self.names.push(pat.ident.clone());
        visit::visit_pat_ident(self, pat);
    }

    fn visit_pat(&mut self, pat: &Pat) {
        self.open |= matches!(pat, Pat::Macro(_) | Pat::Verbatim(_));
        visit::visit_pat(self, pat);
    }
}

struct NameChecker<'a> {
    scope: &'a ArgumentScope<'a>,
    argument: &'static str,
    /// Names bound anywhere in the expression, by closures, `let` and `match`. The set may be too large, so that no
    /// error is wrong.
    bound: Vec<String>,
    /// The nesting depth of closures and async blocks.
    inner: usize,
    error: Option<Error>,
}

impl NameChecker<'_> {
    fn name(&mut self, path: &ExprPath) {
        let Some(ident) = path.path.get_ident() else { return };
        let name = ident.unraw().to_string();
        if path.qself.is_some() || !is_local(&name) {
            return;
        }
        let error = match name.as_str() {
            "self" if !self.scope.function.has_receiver() => {
                let function = &self.scope.function.sig.ident;
                Error::new(ident.span(), format!("no `self` here: `{function}` has no receiver"))
            }
            "self" | "super" | "crate" => return,
            _ if self.scope.knows(&name) || self.bound.contains(&name) => return,
            _ => self.scope.missing(ident),
        };
        self.error.get_or_insert(error);
    }
}

impl Visit<'_> for NameChecker<'_> {
    fn visit_expr(&mut self, expr: &Expr) {
        match expr {
            Expr::Path(path) => self.name(path),
            Expr::Call(call) => {
                if !matches!(&*call.func, Expr::Path(_)) {
                    self.visit_expr(&call.func);
                }
                call.args.iter().for_each(|arg| self.visit_expr(arg));
            }
            Expr::MethodCall(call) => {
                self.visit_expr(&call.receiver);
                // `.map(normalise)`: a bare name as an argument may be a function.
                call.args.iter().filter(|arg| !matches!(arg, Expr::Path(_))).for_each(|arg| self.visit_expr(arg));
            }
            Expr::Closure(_) | Expr::Async(_) => {
                self.inner += 1;
                visit::visit_expr(self, expr);
                self.inner -= 1;
            }
            _ => visit::visit_expr(self, expr),
        }
    }

    fn visit_expr_try(&mut self, expr: &ExprTry) {
        // `with = app.executor()?` fails like the handler: nothing is claimed yet, and nothing is skipped.
        if self.inner == 0 && self.argument != "with" {
            let name = self.argument;
            let text = match name {
                "after" => {
                    "`?` would leave the handler before anything is claimed. Leave it out: an `Option` is taken as \
                            it is, and `None` is the first of its chain"
                        .to_owned()
                }
                name => format!(
                    "`?` would leave the handler before the key is known. Leave it out: an `Option` can be part of `{name}`, \
                 and a missing value is an error for this message (never a constant all such messages share); for a \
                 default say `.unwrap_or(…)`"
                ),
            };
            self.error.get_or_insert(Error::new(expr.question_token.span, text));
        }
        visit::visit_expr_try(self, expr);
    }

    fn visit_expr_return(&mut self, expr: &ExprReturn) {
        if self.inner == 0 {
            let name = self.argument;
            let text = format!(
                "`return` in `{name}` would end the call before anything is claimed, and the handler would not run: give \
                 `{name}` a value in each case"
            );
            self.error.get_or_insert(Error::new(expr.return_token.span, text));
        }
        visit::visit_expr_return(self, expr);
    }

    fn visit_item(&mut self, _: &Item) {}

    fn visit_macro(&mut self, _: &Macro) {}
}

#[cfg(test)]
mod tests;
