//! Functions that `#[async_trait]` has already rewritten to `Box::pin(async move { … })`. The run goes inside the
//! block.
use proc_macro2::{Group, Ident, TokenStream, TokenTree};
use quote::{ToTokens, quote};
use syn::parse::Parser;
use syn::spanned::Spanned;
use syn::{Block, Expr, ExprAsync, Local, Pat, Result, Stmt, Type, parse_quote};

use super::{HandlerReturn, wrap};
use crate::item::AnnotatedFunction;
use crate::normalise::AttributePlan;

pub(super) fn expand(
    plan: &AttributePlan,
    private: &TokenStream,
    setup: &TokenStream,
    mut function: AnnotatedFunction,
) -> Result<TokenStream> {
    let Ok(mut body) = Block::parse_within.parse2(function.body.clone()) else { return Err(function.needs_async()) };
    let Some(boxed) = async_block(&mut body) else { return Err(function.needs_async()) };
    let mut setup = setup.clone();
    if let Some(place) = boxed.block.stmts.iter().position(is_the_body) {
        // `let __self = self; let order = order; let __ret: R = { body };`: the arguments have their own names again
        // here.
        if let Some(this) = boxed.block.stmts.iter().find_map(renamed_self) {
            setup = rename_self(setup, &this);
        }
        if let Some(Stmt::Local(local)) = boxed.block.stmts.get_mut(place) {
            wrap_local(plan, private, local);
        }
        let before = Block::parse_within.parse2(setup)?;
        boxed.block.stmts.splice(place..place, before);
    } else {
        let inner = &boxed.block.stmts;
        let hole = parse_quote!(_);
        let returned = HandlerReturn { ty: &hole, named: false, bounded: None };
        let run = wrap(plan, private, &returned, boxed.block.span(), &quote!(#(#inner)*));
        boxed.block.stmts = Block::parse_within.parse2(quote!(#setup #run))?;
    }
    function.body = quote!(#(#body)*);
    Ok(quote!(#function))
}

/// Returns the patterns of destructured arguments, which `#[async_trait]` moves into the body: `let (a, b) = __arg1;`.
pub(crate) fn patterns(body: &TokenStream) -> Vec<Pat> {
    let mut body = Block::parse_within.parse2(body.clone()).unwrap_or_default();
    let Some(boxed) = async_block(&mut body) else { return Vec::new() };
    let before = boxed.block.stmts.iter().take_while(|statement| !is_the_body(statement));
    let locals = before.filter_map(|statement| match statement {
        Stmt::Local(local) => Some(local.pat.clone()),
        _ => None,
    });
    locals.collect()
}

/// Returns the original return type and body of the function, and the name of `self` in that body.
pub(crate) fn handler(body: &TokenStream) -> Option<(Type, Vec<Stmt>, Option<Ident>)> {
    let mut body = Block::parse_within.parse2(body.clone()).ok()?;
    let boxed = async_block(&mut body)?;
    let this = boxed.block.stmts.iter().find_map(renamed_self);
    let run = boxed.block.stmts.iter().find(|statement| is_the_body(statement))?;
    let Stmt::Local(Local { pat: Pat::Type(typed), init: Some(init), .. }) = run else { return None };
    let Expr::Block(block) = &*init.expr else { return None };
    Some(((*typed.ty).clone(), block.block.stmts.clone(), this))
}

/// Returns whether the body is `Box::pin(async move { … })`.
pub(crate) fn is_boxed(body: &TokenStream) -> bool {
    Block::parse_within.parse2(body.clone()).is_ok_and(|mut body| async_block(&mut body).is_some())
}

fn async_block(body: &mut [Stmt]) -> Option<&mut ExprAsync> {
    let Some(Stmt::Expr(Expr::Call(call), None)) = body.last_mut() else { return None };
    let Expr::Path(path) = &*call.func else { return None };
    let names: Vec<_> = path.path.segments.iter().map(|segment| segment.ident.to_string()).collect();
    match (names.ends_with(&["Box".into(), "pin".into()]), call.args.first_mut()) {
        (true, Some(Expr::Async(block))) => Some(block),
        _ => None,
    }
}

/// Returns whether the statement is `let __ret: R = { … };`, or `let _: () = { … };` for a function without a return
/// type.
fn is_the_body(statement: &Stmt) -> bool {
    let Stmt::Local(Local { pat: Pat::Type(typed), init: Some(init), .. }) = statement else { return false };
    let named = match &*typed.pat {
        Pat::Ident(pat) => pat.ident == "__ret",
        Pat::Wild(_) => true,
        _ => false,
    };
    named && matches!(&*init.expr, Expr::Block(_))
}

fn wrap_local(plan: &AttributePlan, private: &TokenStream, local: &mut Local) {
    let (Pat::Type(typed), Some(init)) = (&local.pat, &mut local.init) else { return };
    let Expr::Block(block) = &mut *init.expr else { return };
    let ret: &Type = &typed.ty;
    let inner = &block.block.stmts;
    let braces = block.block.brace_token.span.join();
    let run = wrap(plan, private, &HandlerReturn::named(ret), braces, &quote!(#(#inner)*));
    block.block.stmts = vec![Stmt::Expr(Expr::Verbatim(run), None)];
}

/// Returns `__self` of `let __self = self;`.
fn renamed_self(statement: &Stmt) -> Option<Ident> {
    let Stmt::Local(Local { pat: Pat::Ident(pat), init: Some(init), .. }) = statement else { return None };
    let of_self = init.expr.to_token_stream().to_string() == "self";
    of_self.then(|| pat.ident.clone())
}

fn rename_self(tokens: TokenStream, this: &Ident) -> TokenStream {
    let rename = |token| match token {
        TokenTree::Ident(ident) if ident == "self" => TokenTree::Ident(this.clone()),
        TokenTree::Group(group) => {
            let mut renamed = Group::new(group.delimiter(), rename_self(group.stream(), this));
            renamed.set_span(group.span());
            TokenTree::Group(renamed)
        }
        other => other,
    };
    tokens.into_iter().map(rename).collect()
}
