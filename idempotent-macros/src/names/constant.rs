//! Keys that name no argument: literals, constants, the current time. With one key for all calls, every message after
//! the first would count as a duplicate. A key that changes on its own finds no duplicate.
use proc_macro2::{TokenStream, TokenTree};
use quote::ToTokens;
use syn::ext::IdentExt;
use syn::visit::{self, Visit};
use syn::{Error, Expr, ExprLit, ExprPath, Lit, Macro, Result, parse_str};

use super::{ArgumentScope, bare};
use crate::text::tidy;

/// Refuses a key that names no argument. A deliberate constant key has the form `const { … }`.
pub(super) fn refuse_others(key: &Expr, scope: &ArgumentScope<'_>) -> Result<()> {
    let is_meant = matches!(key, Expr::Const(_)) || names_an_argument(key, scope);
    if is_meant { Ok(()) } else { Err(of_no_call(key, scope)) }
}

/// Refuses a key that consists of literals, and suggests the expression that was probably intended.
pub(super) fn refuse_literals(key: &Expr, scope: &ArgumentScope<'_>) -> Result<()> {
    if !is_constant(key) {
        return Ok(());
    }
    let remedy = match meant(key, scope) {
        Some(meant) => format!("; did you mean `key = {meant}`?"),
        None => {
            let available = scope.available();
            let example = scope.names.first().map(|name| format!(", e.g. `key = {name}`")).unwrap_or_default();
            format!(
                ", so only the first would run: name an argument that distinguishes them{example}; for a deliberate \
                 singleton write `key = const {{ … }}`\navailable: {available}"
            )
        }
    };
    Err(Error::new_spanned(key, format!("this is one key for all calls{remedy}")))
}

fn of_no_call(key: &Expr, scope: &ArgumentScope<'_>) -> Error {
    let example = scope.names.first().map(|name| format!(", e.g. `key = ({name}, …)`")).unwrap_or_default();
    let text = format!(
        "this key names no argument, so all calls would share one key: name one{example}. A value from elsewhere, such as a day, \
         must be an argument too; for a deliberate singleton write `key = const {{ … }}`\navailable: {}",
        scope.available()
    );
    Error::new_spanned(key, text)
}

/// Returns whether the key mentions an argument or `self`.
fn names_an_argument(key: &Expr, scope: &ArgumentScope<'_>) -> bool {
    let mut mentions = ArgumentFinder { scope, found: scope.open };
    mentions.visit_expr(key);
    mentions.found
}

struct ArgumentFinder<'a> {
    scope: &'a ArgumentScope<'a>,
    found: bool,
}

impl ArgumentFinder<'_> {
    fn is_argument(&self, name: &str) -> bool {
        self.scope.knows(name) || (name == "self" && self.scope.function.has_receiver())
    }

    /// Looks for names in the tokens of a macro, including the captures of a format string.
    fn tokens(&mut self, tokens: TokenStream) {
        for token in tokens {
            match token {
                TokenTree::Group(group) => self.tokens(group.stream()),
                TokenTree::Ident(ident) => self.found |= self.is_argument(&ident.unraw().to_string()),
                TokenTree::Literal(literal) => {
                    let text = literal.to_string();
                    let captured =
                        text.split('{').skip(1).map(|part| part.split([':', '}']).next().unwrap_or_default());
                    self.found |= captured.into_iter().any(|name| self.is_argument(name.trim()));
                }
                TokenTree::Punct(_) => {}
            }
        }
    }
}

impl Visit<'_> for ArgumentFinder<'_> {
    fn visit_expr_path(&mut self, path: &ExprPath) {
        if let Some(ident) = path.path.get_ident() {
            self.found |= self.is_argument(&ident.unraw().to_string());
        }
        visit::visit_expr_path(self, path);
    }

    fn visit_macro(&mut self, mac: &Macro) {
        self.tokens(mac.tokens.clone());
    }
}

fn is_constant(expr: &Expr) -> bool {
    match expr {
        Expr::Lit(_) => true,
        Expr::Paren(inner) => is_constant(&inner.expr),
        Expr::Group(inner) => is_constant(&inner.expr),
        Expr::Reference(inner) => is_constant(&inner.expr),
        Expr::Unary(inner) => is_constant(&inner.expr),
        Expr::Cast(inner) => is_constant(&inner.expr),
        Expr::Repeat(inner) => is_constant(&inner.expr),
        Expr::Tuple(tuple) => tuple.elems.iter().all(is_constant),
        Expr::Array(array) => array.elems.iter().all(is_constant),
        Expr::MethodCall(_) => converted(expr).is_some_and(is_constant),
        _ => false,
    }
}

/// Returns `"text"` of `"text".to_owned()`.
fn converted(expr: &Expr) -> Option<&Expr> {
    const CONVERSIONS: [&str; 6] = ["as_bytes", "as_str", "clone", "into", "to_owned", "to_string"];
    match expr {
        Expr::MethodCall(call) if CONVERSIONS.iter().any(|name| call.method == name) => Some(&call.receiver),
        _ => None,
    }
}

/// Returns the key without its wrong quotes, if the quoted text begins with an argument.
fn meant(key: &Expr, scope: &ArgumentScope<'_>) -> Option<String> {
    match key {
        Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => {
            // Other languages write `#order.id` or `${order.id}`.
            let text = text.value();
            let expr: Expr = parse_str(text.trim_matches(|char| "#${} ".contains(char))).ok()?;
            let root = bare(root(&expr))?.unraw().to_string();
            let known = scope.names.contains(&root) || (root == "self" && scope.function.has_receiver());
            known.then(|| tidy(expr.to_token_stream()))
        }
        Expr::Tuple(tuple) => {
            let meant: Vec<_> = tuple.elems.iter().map(|part| meant(part, scope)).collect();
            let written = tuple.elems.iter().map(|part| tidy(part.to_token_stream()));
            let parts: Vec<_> = meant.iter().cloned().zip(written).map(|(meant, part)| meant.unwrap_or(part)).collect();
            meant.iter().any(Option::is_some).then(|| format!("({})", parts.join(", ")))
        }
        Expr::Paren(inner) => meant(&inner.expr, scope),
        Expr::Group(inner) => meant(&inner.expr, scope),
        Expr::Reference(inner) => meant(&inner.expr, scope),
        Expr::MethodCall(_) => meant(converted(key)?, scope),
        _ => None,
    }
}

/// Returns `order` of `order.lines[0].id()`.
fn root(expr: &Expr) -> &Expr {
    match expr {
        Expr::Field(field) => root(&field.base),
        Expr::MethodCall(call) => root(&call.receiver),
        Expr::Index(index) => root(&index.expr),
        other => other,
    }
}
