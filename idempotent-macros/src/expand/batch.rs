//! Code generation for `batch = item in items`: one call for each item, and one run of the body for all items whose keys
//! are free.
use proc_macro2::{Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{Result, parse_quote};

use super::call;
use crate::batch::BatchTypes;
use crate::item::AnnotatedFunction;
use crate::normalise::AttributePlan;

/// Generates the function. The body owns its arguments, and a `Vec` of the items in place of the caller's.
pub(super) fn expand(
    plan: &AttributePlan,
    private: &TokenStream,
    (item, list, types): (&syn::Ident, &syn::Ident, &BatchTypes),
    mut function: AnnotatedFunction,
) -> Result<TokenStream> {
    let site = Span::mixed_site();
    let BatchTypes { pattern, list: list_type, answers, answer } = types;
    let place = answer.span();
    let with = call::with(plan, private);
    let call = call::call(plan, private, &function)?;
    // An error about the answer has its location.
    let at_answer = &super::moved(private.clone(), place);
    let reply = plan.reply.as_ref().map_or_else(|| quote_spanned!(place=> #at_answer::DefaultReply), |ty| quote!(#ty));
    let codec = plan.codec.as_ref().map_or_else(|| quote_spanned!(place=> #private::Json), |ty| quote!(#ty));
    let reject = plan.reject.as_ref().map_or_else(
        || quote_spanned!(place=> <#reply as #at_answer::RejectStrategy<#answer>>::rejected),
        |reject| quote!(#reject),
    );
    let (failed_if, permanent, describe) = (plan.failed_if.iter(), plan.permanent.iter(), plan.describe.iter());
    let body = &function.body;
    let block = Span::mixed_site().located_at(function.brace.span.join());
    let body = quote_spanned!(block=> { #body });
    let handler = quote_spanned!(place=> __idempotent_handler);
    let parts = quote_spanned!(site.located_at(place)=> __idempotent_with, __idempotent_items, #handler);
    let run = quote_spanned!(place=> #private::run_batch(#parts));
    function.body = quote_spanned!(site=>
        let __idempotent_with = #with;
        let mut __idempotent_items = #private::Vec::new();
        for #item in #list {
            let __idempotent_call = #call;
            __idempotent_items.push((__idempotent_call, #item));
        }
        let #handler = #private::Handler::<#reply, #codec, #answer, _>::batch_rejecting(
            move |__idempotent_batch: #private::Vec<#private::BatchItem<_>>| async move {
                let #pattern: #list_type = __idempotent_batch.into_iter().map(|__idempotent_item| __idempotent_item.item).collect();
                // This code never runs. It gives inference the return type before the body.
                if let ::core::option::Option::Some(__idempotent_return) = ::core::option::Option::None::<#answers> {
                    return __idempotent_return;
                }
                #body
            },
            #reject,
        ) #(.failed_if(#failed_if))* #(.permanent(#permanent))* #(.describe(#describe))*;
        return #run.await;
    );
    if let Some(reply) = &plan.reply {
        function.sig.output = parse_quote!(-> #private::Vec<<#reply as #private::ResponseShape>::Output<#answer>>);
    }
    Ok(quote!(#function))
}
