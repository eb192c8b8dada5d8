//! Code generation: moves the handler's body into a closure and runs the closure with the executor.
//!
//! Generated code has the hygiene of a macro (`Span::mixed_site`), so its names cannot collide with the user's, and
//! lints skip it. Code that an error can refer to has the location of the user's tokens.
mod batch;
pub(crate) mod boxed;
mod call;
pub(crate) mod opaque;

use proc_macro2::{Span, TokenStream, TokenTree};
use quote::{quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{Path, Result, ReturnType, Type, parse_quote, parse_quote_spanned};

use crate::item::AnnotatedFunction;
use crate::normalise::AttributePlan;
use crate::transaction::TransactionParameter;

pub(crate) fn expand(plan: &AttributePlan, mut function: AnnotatedFunction) -> Result<TokenStream> {
    let private = private(plan.krate.as_ref());
    if let Some((batch, types)) = plan.batch.as_ref().and_then(|batch| Some((batch, batch.types.as_ref()?))) {
        return batch::expand(plan, &private, (&batch.item, &batch.list, types), function);
    }
    let setup = call::setup(plan, &private, &function)?;
    if function.sig.asyncness.is_none() {
        return boxed::expand(plan, &private, &setup, function);
    }
    let mut ret = match &function.sig.output {
        ReturnType::Default => parse_quote_spanned!(function.sig.ident.span()=> ()),
        ReturnType::Type(_, ty) => (**ty).clone(),
    };
    let written = ret.clone();
    let erased = opaque::erase(&mut ret);
    // If the function still returns the type, rustc checks the bounds.
    let bounded = (erased && plan.reply.is_some()).then_some(&written);
    if let Some(reply) = &plan.reply {
        // A type that cannot be named has no `Output`. A strategy that converts all answers to one type ignores this
        // argument.
        let asked: Type = if erased { parse_quote!(::core::convert::Infallible) } else { ret.clone() };
        function.sig.output = parse_quote!(-> <#reply as #private::ResponseShape>::Output<#asked>);
    }
    let body = &function.body;
    let returned = HandlerReturn { ty: &ret, named: !erased, bounded };
    let run = wrap(plan, &private, &returned, function.brace.span.join(), body);
    function.body = quote!(#setup #run);
    Ok(quote!(#function))
}

/// Returns the path of the hidden module that generated code calls.
pub(crate) fn private(krate: Option<&Path>) -> TokenStream {
    match krate {
        Some(krate) => quote!(#krate::__private),
        None => quote_spanned!(Span::mixed_site()=> ::idempotent::__private),
    }
}

/// Returns a span with the location of the user's tokens and the hygiene of generated code.
fn at(tokens: &impl Spanned) -> Span {
    Span::mixed_site().located_at(tokens.span())
}

/// The return type of the body.
struct HandlerReturn<'a> {
    ty: &'a Type,
    /// True if the type contains no `_`.
    named: bool,
    /// The type as written, if its bounds would be lost otherwise.
    bounded: Option<&'a Type>,
}

impl<'a> HandlerReturn<'a> {
    fn named(ty: &'a Type) -> Self {
        Self { ty, named: true, bounded: None }
    }
}

/// Generates the run: a handler with the given body and return type.
///
/// Code that fails to compile without a strategy, codec or `From` has the location of the return type, because the
/// error is about that type. rustc reports each unmet bound only once per location.
fn wrap(
    plan: &AttributePlan,
    private: &TokenStream,
    returned: &HandlerReturn<'_>,
    block: Span,
    body: &TokenStream,
) -> TokenStream {
    let ret = returned.ty;
    let place = ret.span();
    let site = Span::mixed_site().located_at(place);
    let block = Span::mixed_site().located_at(block);
    let private = &moved(private.clone(), place);
    let strategy = |given: &Option<Type>, default: TokenStream| given.as_ref().map_or(default, |ty| quote!(#ty));
    let reply = strategy(&plan.reply, quote_spanned!(place=> #private::DefaultReply));
    let codec = strategy(&plan.codec, quote_spanned!(place=> #private::Json));
    let failed_if = plan.failed_if.iter();
    let (permanent, describe) = (plan.permanent.iter(), plan.describe.iter());
    let (make, reject) = match &plan.reject {
        Some(reject) => (quote_spanned!(place=> rejecting), quote_spanned!(place=> , #reject)),
        // If the type can be named, its bound is checked here. Otherwise rustc would report the error on the closure.
        None if returned.named => {
            let rejected = quote_spanned!(place=> , <#reply as #private::RejectStrategy<#ret>>::rejected);
            (quote_spanned!(place=> rejecting), rejected)
        }
        None => (quote_spanned!(place=> new), TokenStream::new()),
    };
    // This code never runs. It gives inference the return type before the body, so that `?`, `.into()` and coercions
    // work as in a plain function. The compiler must not see unreachable code, because an `allow` would fail under
    // `forbid`.
    let check = quote_spanned!(site=> __idempotent_bounds);
    let bounded = returned.bounded.map(|written| opaque::check(&check, written));
    let bounds = bounded.as_ref().map(|bounded| &bounded.item);
    let checked = bounded.as_ref().filter(|bounded| bounded.takes);
    let checked = checked.map(|_| quote_spanned!(site=> #check(&__idempotent_return);));
    let fake_return = quote_spanned!(site=>
        #bounds
        if let ::core::option::Option::Some(__idempotent_return) = ::core::option::Option::None::<#ret> {
            #checked
            return __idempotent_return;
        }
    );
    // The body has a block of its own, so that a `use` in the body does not affect the return type above. The braces
    // have our hygiene, so that no lint reports them.
    let body = quote_spanned!(block=> { #body });
    // rustc reports an unmet bound of `run` on the handler, so the handler has the location of the return type and the
    // user's hygiene. The name hides no user variable, because all user code comes before it.
    let handler = quote_spanned!(place=> __idempotent_handler);
    let parts = quote_spanned!(site=> __idempotent_with, __idempotent_call, #handler);
    let run = quote_spanned!(place=> #private::run(#parts));
    let run = if plan.detach {
        let begun = quote_spanned!(site=> __idempotent_begun);
        quote_spanned!(place=> #private::Begun::detached(#begun, #private::Box::pin(#run)))
    } else {
        run
    };
    let run = quote_spanned!(place=> #run.await);
    let lend = plan.transaction.iter().map(TransactionParameter::lend);
    let run_body = quote_spanned!(site=> move || async move { #(#lend)* #fake_return #body });
    // The trait must be in scope for strategies without such a function of their own. `Auto` has none, so the import is
    // always used.
    let run_body = plan.reply.as_ref().map_or(run_body.clone(), |reply| {
        quote_spanned!(place=> {
            use #private::ResponseShape as _;
            <#private::DefaultReply>::unified(<#reply>::unified(#run_body))
        })
    });
    let (begun, run_body) = if plan.detach {
        let begun = quote_spanned!(site=>
            let __idempotent_begun = #private::Begun::of(__idempotent_with.as_ref(), &__idempotent_call);
        );
        (begun, quote_spanned!(site=> __idempotent_begun.clone().told(#run_body)))
    } else {
        (TokenStream::new(), run_body)
    };
    let made = quote_spanned!(place=> #private::Handler::<#reply, #codec, _, _>::#make(#run_body #reject));
    quote_spanned!(site=>
        #begun
        // A separate statement, so that the types are known to the closures after it.
        let #handler = #made #(.failed_if(#failed_if))* #(.permanent(#permanent))* #(.describe(#describe))*;
        // One lint demands a final `return`, another forbids it. The second one skips generated code.
        return #run;
    )
}

/// Moves the outermost tokens to `place`, since an error about a path covers its first to its last token.
fn moved(tokens: TokenStream, place: Span) -> TokenStream {
    let moved = |mut token: TokenTree| {
        token.set_span(place);
        token
    };
    tokens.into_iter().map(moved).collect()
}
