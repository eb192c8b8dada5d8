//! Puts the handler's body into a closure, and the executor around it.
//!
//! What we write carries the hygiene of a macro (`Span::mixed_site`): our names cannot meet the user's, and lints
//! leave it alone. What an error can be about is located at the user's tokens.
pub(crate) mod boxed;
mod call;
mod opaque;

use proc_macro2::{Span, TokenStream, TokenTree};
use quote::{quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{Result, ReturnType, Type, parse_quote, parse_quote_spanned};

use crate::item::Function;
use crate::normalise::Plan;
use crate::transaction::Transaction;

pub(crate) fn expand(plan: &Plan, mut function: Function) -> Result<TokenStream> {
    let private = private(plan);
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
    // Where the function still returns it, rustc looks after it.
    let bounded = (erased && plan.reply.is_some()).then_some(&written);
    if let Some(reply) = &plan.reply {
        // What has no name cannot be asked for its output; a strategy that makes one type of all does not look.
        let asked: Type = if erased { parse_quote!(::core::convert::Infallible) } else { ret.clone() };
        function.sig.output = parse_quote!(-> <#reply as #private::Reshapes>::Output<#asked>);
    }
    let body = &function.body;
    let returned = Returned { ty: &ret, named: !erased, bounded };
    let run = wrap(plan, &private, &returned, function.brace.span.join(), body);
    function.body = quote!(#setup #run);
    Ok(quote!(#function))
}

/// The hidden module that generated code calls.
fn private(plan: &Plan) -> TokenStream {
    match &plan.krate {
        Some(krate) => quote!(#krate::__private),
        None => quote_spanned!(Span::mixed_site()=> ::idempotent::__private),
    }
}

/// Located at the user's tokens, with the hygiene of ours.
fn at(tokens: &impl Spanned) -> Span {
    Span::mixed_site().located_at(tokens.span())
}

/// What the body returns.
struct Returned<'a> {
    ty: &'a Type,
    /// Without holes for inference.
    named: bool,
    /// As it was written, where its bounds would be lost otherwise.
    bounded: Option<&'a Type>,
}

impl<'a> Returned<'a> {
    fn named(ty: &'a Type) -> Self {
        Self { ty, named: true, bounded: None }
    }
}

/// The run itself: `body` as a handler that returns `returned`.
///
/// All that a missing strategy, codec or `From` can be noticed at stands where the return type stands, which it is
/// about; and rustc reports one unmet bound once per place.
fn wrap(plan: &Plan, private: &TokenStream, returned: &Returned<'_>, block: Span, body: &TokenStream) -> TokenStream {
    let ret = returned.ty;
    let place = ret.span();
    let site = Span::mixed_site().located_at(place);
    let block = Span::mixed_site().located_at(block);
    let private = &moved(private.clone(), place);
    let strategy = |given: &Option<Type>, default: TokenStream| given.as_ref().map_or(default, |ty| quote!(#ty));
    let reply = strategy(&plan.reply, quote_spanned!(place=> #private::Auto));
    let codec = strategy(&plan.codec, quote_spanned!(place=> #private::Json));
    let failed_if = plan.failed_if.iter();
    let permanent = plan.permanent.iter();
    let (make, reject) = match &plan.reject {
        Some(reject) => (quote_spanned!(place=> rejecting), quote_spanned!(place=> , #reject)),
        // Where the type has a name it is asked for here: rustc would blame the closure.
        None if returned.named => {
            let rejected = quote_spanned!(place=> , <#reply as #private::Rejects<#ret>>::rejected);
            (quote_spanned!(place=> rejecting), rejected)
        }
        None => (quote_spanned!(place=> new), TokenStream::new()),
    };
    // Never runs; tells inference the return type before it reads the body, so `?`, `.into()` and coercions work
    // as in a plain fn. Nothing in it is unreachable to the compiler: an `allow` would break under `forbid`.
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
    // A block of its own: a `use` in the body must not reach the return type above. The braces are ours, so no
    // lint takes them for the user's.
    let body = quote_spanned!(block=> { #body });
    // rustc blames the handler where a bound of `run` is not met, so it stands there too, with the user's hygiene.
    // Nobody's name is hidden by it: all that the user wrote comes before it.
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
    let lend = plan.transaction.iter().map(Transaction::lend);
    let run_body = quote_spanned!(site=> move || async move { #(#lend)* #fake_return #body });
    // The trait has to be in scope for strategies that have no function of their own; `Auto` has none, so nobody is
    // told of an import that is not used.
    let run_body = plan.reply.as_ref().map_or(run_body.clone(), |reply| {
        quote_spanned!(place=> {
            use #private::Reshapes as _;
            <#private::Auto>::unified(<#reply>::unified(#run_body))
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
        // A statement of its own: the closures after it then know the types they judge.
        let #handler = #made #(.failed_if(#failed_if))* #(.permanent(#permanent))*;
        // One lint asks for a `return` at the end, another for none; the latter leaves one of ours alone.
        return #run;
    )
}

/// Moves the outermost tokens: an error about a path shows from its first to its last.
fn moved(tokens: TokenStream, place: Span) -> TokenStream {
    let moved = |mut token: TokenTree| {
        token.set_span(place);
        token
    };
    tokens.into_iter().map(moved).collect()
}
