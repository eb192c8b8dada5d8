//! A key that is the same for all calls: literals alone. Every message after the first would pass for done.
use quote::ToTokens;
use syn::ext::IdentExt;
use syn::{Error, Expr, ExprLit, Lit, Result, parse_str};

use super::{Scope, bare};
use crate::text::tidy;

/// Refuses it. A `const` is let pass: whoever gave the one key a name meant it.
pub(super) fn refuse(key: &Expr, scope: &Scope<'_>) -> Result<()> {
    if !is_constant(key) {
        return Ok(());
    }
    let remedy = match meant(key, scope) {
        Some(meant) => format!("; did you mean `key = {meant}`?"),
        None => {
            let available = scope.available();
            let example = scope.names.first().map(|name| format!(", e.g. `key = {name}`")).unwrap_or_default();
            format!(
                ", so only the first would run: name an argument that tells them apart{example}; for a deliberate \
                 singleton use a `const`\navailable: {available}"
            )
        }
    };
    Err(Error::new_spanned(key, format!("this is one key for all calls{remedy}")))
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

/// `"text"` of `"text".to_owned()`.
fn converted(expr: &Expr) -> Option<&Expr> {
    const CONVERSIONS: [&str; 6] = ["as_bytes", "as_str", "clone", "into", "to_owned", "to_string"];
    match expr {
        Expr::MethodCall(call) if CONVERSIONS.iter().any(|name| call.method == name) => Some(&call.receiver),
        _ => None,
    }
}

/// The key without the quotes that should not be there, if what they hold begins with an argument.
fn meant(key: &Expr, scope: &Scope<'_>) -> Option<String> {
    match key {
        Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => {
            // `#order.id`, `${order.id}` and the like are how other languages say it.
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

/// `order` of `order.lines[0].id()`.
fn root(expr: &Expr) -> &Expr {
    match expr {
        Expr::Field(field) => root(&field.base),
        Expr::MethodCall(call) => root(&call.receiver),
        Expr::Index(index) => root(&index.expr),
        other => other,
    }
}
