//! The `#[idempotent]` attribute. Use it from the facade, `idempotent-rs`, or beside `idempotent-core` with
//! `crate = ::idempotent_core`.
//!
//! Three steps: `parse` takes the arguments as written, `normalise` looks up what they mean, `expand` writes code.
//! That code calls nothing but the core's hidden `__private` module.
mod expand;
mod item;
mod names;
mod normalise;
mod owned;
mod parse;
mod reserved;
mod suggest;
mod text;
mod transaction;
mod units;

use proc_macro::TokenStream;
use quote::quote;

use self::item::Function;
use self::normalise::Plan;

/// Runs an `async fn` once per key: a duplicate gets the recorded result, one that is in flight is told to come
/// back later, and a failure frees the key for the next attempt.
///
/// ```
/// use idempotent::{Executor, MemoryStore, Rejection, idempotent};
///
/// struct Order {
///     id: u64,
///     total: u32,
/// }
///
/// #[idempotent(scene = mq, key = order.id)]
/// async fn charge(order: Order) -> Result<u32, Rejection> {
///     println!("charged once");
///     Ok(order.total)
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let executor = Executor::new(MemoryStore::default());
/// let order = || Order { id: 17, total: 40 };
/// assert_eq!(executor.scope(charge(order())).await.unwrap(), 40);
/// assert_eq!(executor.scope(charge(order())).await.unwrap(), 40); // the recorded result
///
/// // Without an executor nothing runs: never a silent pass-through.
/// assert!(matches!(charge(order()).await, Err(Rejection::NoExecutor { .. })));
/// # }
/// ```
///
/// It goes on any `async fn` with a body: free, a method, generic, with `impl Trait` or destructured arguments, in a
/// trait's impl, native or `#[async_trait]`, above or below `#[tracing::instrument]`. The function must return a
/// `Result<T, E>` with `E: From<idempotent::Rejection>` and a `T` that serde can keep, or a
/// `Disposition`; for anything else name a `reply` strategy, a `reject` function or a `codec`.
///
/// # Arguments
/// Only `key` is required, with `by = token` the `tenant`, too, and with `by = param` nothing. Durations are text like `"30s"`, `"10m"`, `"1h 30m"`, `"7d"`, counted in milliseconds and
/// rounded up; sizes are text like `"512KB"` or `"1MiB"`. What is not said here comes from the executor's policy
/// for the scene, then from the defaults below.
///
/// | argument | value | default |
/// |---|---|---|
/// | `key` | expression over the arguments, `self` included: text, bytes, integer, `Option` or tuple of those, or any `KeyPart`. An empty or missing part is an error for the call; a literal alone is refused, since it is one key for all calls. With `by = token` the token; with `by = param` what counts, anything `Serialize` | required; for `by = param` all arguments but `self` and what `with` names |
/// | `after` | expression, as for `key`: the key of the call of this handler that this one comes after. It runs once that one is consumed, and is put off until then. `None` is the first of its chain; an `Identity` or a `Key` names a call of another handler. Not with `by = token` and `by = param` | none: in any order |
/// | `sequence` | `(stream, number)`: this call is that number (u64) of a stream, named as a key is, or by an `Identity` or a `Key` for a stream of several handlers. It runs once all smaller numbers are over that the producer registered (`Executor::register`) or that came before, never beside another of its stream, and is put off until then. In place of `after` | none: in any order |
/// | `on_broken_order` | with `after` or `sequence`: what becomes of a call whose predecessor failed for good, is dead, or was not seen for this long. `hold("10m")`: it is held and told of; `skip("10m")`: it runs after that time; `halt("10m")`: it is dead, too | `hold("10m")` |
/// | `on_late` | with `sequence`: a number that comes when a larger one was let in. `run`: it runs, and is told of; `refuse`: it is dead | `run` |
/// | `by` | `key`: a key that the caller made; `token`: one that [`Tokens`](https://docs.rs/idempotent-rs/latest/idempotent/struct.Tokens.html) issued, good for one call that succeeds; `param`: what the call says, for a `window` | `key` |
/// | `window` | duration, with `by = param` in place of `retain`: for this long, counted from completion, an equal call is a duplicate; one in flight counts, too | `"5s"` |
/// | `ttl` | duration, with `by = token`: after a run that failed its token is good for this long again. Until its first use the `ttl` of the `Tokens` counts that issued it | `"10m"` |
/// | `replay` | no value, with `by = token` or `by = param`: a duplicate gets the recorded result | off: it is refused with `Rejection::Duplicate` |
/// | `scene` | `mq`, `rest`, or the name of your own in quotes; picks the defaults, part of the identity. Tokens are of `rest` | `mq`; `rest` for `by = token` and `by = param` |
/// | `scope` | text, the same for all calls: the handler or consumer group, part of the identity. Fix it before data is kept: the default changes when the function is moved or renamed. With `by = token` the one of the `Tokens` | the function's path; `Tokens::SCOPE` for `by = token` |
/// | `prefix` | text: the namespace of the keys. Not with `by = token` | the executor's |
/// | `tenant` | expression, as for `key`: equal keys of two tenants are two keys. With `by = token` the caller it was issued to, and required | none |
/// | `fingerprint` | expression that is `Serialize`, or a `Fingerprint`: the same key with another payload is refused. Not with `by = param`, where it is the key | none |
/// | `with` | expression that is `AsRef<Executor>`, e.g. `self.idem` | the executor in scope, then the installed one, else `Rejection::NoExecutor` |
/// | `lease` | duration: how long a run may hold the key without a renewal; renewed every third of it | `"30s"` |
/// | `max_run` | duration: renewals end here; not shorter than the lease | `"10m"`, or the lease if longer; `"24h"` with `reply = Http` |
/// | `retain` | duration longer than the lease, or `forever`: how long a result is kept, from completion on. Not with `by = param` | `"7d"` for mq, `"24h"` else |
/// | `max_retries` | number (u32), a literal or a constant: after that many failed retries the message is dead | `16` for mq, no limit else |
/// | `on_in_flight` | `retry`: a duplicate is told when to come back; `wait("2s")`: it waits that long for the result first | `retry` |
/// | `on_lease_lost` | `abort`: the handler is dropped at its next await; `finish`: it goes on, and its result counts if nobody took over | `abort`; `finish` with `reply = Http` |
/// | `on_expiry` | `takeover`: the next delivery runs when a lease ran out; `park`: the message is dead, a person decides | `takeover` |
/// | `on_store_error` | `fail`: the call is refused; `run_unprotected`: the handler runs without protection, which no token does | `fail` |
/// | `codec` | type that is a `Codec<T>`: how the result is kept, e.g. `idempotent::Discard` | `idempotent::Json` |
/// | `max_result` | size: a larger result is not kept; duplicates learn that it is done | the executor's |
/// | `reply` | type that is a `Replies<R>`: what the return type means | `idempotent::Auto` |
/// | `reject` | function or closure from `Rejection` to the return type | `From<Rejection>` |
/// | `failed_if` | closure over the value: `true` means "not done", so it is handed on but not kept | never |
/// | `permanent` | closure over the error: `true` means that no retry can help | never |
/// | `transaction` | a parameter of type `&mut Transaction<'_, Db>`, which callers do not pass: the run begins it on the executor's store, claims its key in it, lends it to the body, and commits it with the record (level L3). `leased(tx)` claims by a lease before it: others see that the key is in flight, and attempts are counted | none: the effect is committed by itself |
/// | `message` | text for a duplicate that gets no result: in flight, or refused | the usual text |
/// | `detach` | no value: the run goes on where the caller is dropped (a duplicate that waits, once its handler runs); all it holds must be `Send + 'static`, so its arguments are owned | off |
/// | `release_on_cancel` | no value: a started run that is dropped frees its key; only for handlers whose half-done work does no harm | off |
/// | `crate` | path to the crate that has `__private` | `::idempotent` |
///
/// `reject`, `failed_if` and `permanent` are `fn` pointers: closures there capture nothing.
/// `version` is reserved for a part that is not in this version; `on_in_flight = ack` is refused here: it is a policy of consumers that
/// write a message log.
///
/// # Order of things
/// `key`, `after`, `sequence`, `tenant`, `fingerprint` and `with` are evaluated before the body, by reference: the body may move the
/// arguments. Nothing in them may use `?`: a value that is missing is an error for this message.
///
/// # Examples
/// A service with an executor of its own, a key of two parts and a check on the payload:
/// ```
/// use idempotent::{Executor, MemoryStore, Rejection, idempotent};
///
/// struct Stock {
///     idem: Executor,
/// }
///
/// impl Stock {
///     #[idempotent(key = (tenant, order), with = self.idem, fingerprint = amount, scope = "reserve")]
///     async fn reserve(&self, tenant: u32, order: &str, amount: u32) -> Result<String, Rejection> {
///         Ok(format!("{amount} for {order} of {tenant}"))
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let stock = Stock { idem: Executor::new(MemoryStore::default()) };
/// assert_eq!(stock.reserve(1, "o-17", 5).await.unwrap(), "5 for o-17 of 1");
/// // The same key with another payload is a mistake of the sender.
/// assert!(matches!(stock.reserve(1, "o-17", 6).await, Err(Rejection::Mismatch)));
/// # }
/// ```
/// Values and errors that mean something else than they say, and an error type that knows nothing of rejections:
/// ```
/// use idempotent::{Executor, MemoryStore, idempotent};
///
/// #[idempotent(
///     key = id,
///     with = executor,
///     failed_if = |declined| *declined,
///     permanent = |error| error == "no such account",
///     reject = |rejection| Err(rejection.to_string()),
/// )]
/// async fn pay(executor: &Executor, id: u64, declined: bool) -> Result<bool, String> {
///     Ok(declined)
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let executor = Executor::new(MemoryStore::default());
/// assert_eq!(pay(&executor, 1, true).await, Ok(true)); // declined, so not kept
/// assert_eq!(pay(&executor, 1, false).await, Ok(false)); // ran again
/// assert_eq!(pay(&executor, 1, true).await, Ok(false)); // replayed
/// # }
/// ```
///
/// A form that fetches a token, and whose second submit is refused:
/// ```
/// use idempotent::{Executor, MemoryStore, Rejection, Tokens, idempotent};
///
/// #[idempotent(by = token, key = token, tenant = user, with = executor)]
/// async fn submit(executor: &Executor, user: u64, token: &str, text: &str) -> Result<usize, Rejection> {
///     Ok(text.len())
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let executor = Executor::new(MemoryStore::default());
/// let token = Tokens::new(&executor).issue(7_u64).await.unwrap();
/// assert_eq!(submit(&executor, 7, token.as_str(), "hello").await.unwrap(), 5);
/// assert!(matches!(submit(&executor, 7, token.as_str(), "hello").await, Err(Rejection::Duplicate { .. })));
/// // Made up, or another user's: not told apart.
/// assert!(matches!(submit(&executor, 8, token.as_str(), "hello").await, Err(Rejection::UnknownToken)));
/// # }
/// ```
/// No key at all: two equal orders within a minute are one, if the same user sends them:
/// ```
/// use idempotent::{Executor, MemoryStore, Rejection, idempotent};
///
/// #[idempotent(by = param, window = "1m", message = "you have just ordered that", with = executor)]
/// async fn order(executor: &Executor, user: u64, article: &str, amount: u32) -> Result<u32, Rejection> {
///     Ok(amount)
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let executor = Executor::new(MemoryStore::default());
/// assert_eq!(order(&executor, 7, "tea", 1).await.unwrap(), 1);
/// let refused = order(&executor, 7, "tea", 1).await.unwrap_err();
/// assert_eq!(refused.to_string(), "you have just ordered that");
/// assert!(matches!(refused, Rejection::Duplicate { retry_after: Some(_), .. }));
/// assert_eq!(order(&executor, 7, "tea", 2).await.unwrap(), 2); // says something else
/// assert_eq!(order(&executor, 8, "tea", 1).await.unwrap(), 1); // somebody else
/// # }
/// ```
///
/// Effect and record in one transaction of the store's database, so that the effect happens once whatever is killed when.
/// The handler's commit is the run's; an error rolls back:
/// ```
/// use idempotent::{Executor, Rejection, SqliteStore, idempotent};
/// use sqlx::{Sqlite, Transaction};
///
/// #[derive(Debug, thiserror::Error)]
/// enum Failure {
///     #[error(transparent)]
///     Rejected(#[from] Rejection),
///     #[error(transparent)]
///     Sql(#[from] sqlx::Error),
/// }
///
/// #[idempotent(key = order, transaction = tx)]
/// async fn book(order: u64, cents: i64, tx: &mut Transaction<'_, Sqlite>) -> Result<(), Failure> {
///     sqlx::query("INSERT INTO booking VALUES (?)").bind(cents).execute(&mut **tx).await?;
///     Ok(())
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("shop.db").display().to_string();
/// let executor = Executor::new(SqliteStore::open(&path).await?);
/// # let pool = sqlx::SqlitePool::connect(&path).await?;
/// # sqlx::query("CREATE TABLE booking (cents INTEGER)").execute(&pool).await?;
/// for _ in 0..2 {
///     executor.scope(book(17, 500)).await?; // without the transaction: that is the run's
/// }
/// # let booked: i64 = sqlx::query_scalar("SELECT sum(cents) FROM booking").fetch_one(&pool).await?;
/// assert_eq!(booked, 500);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// A mistake in the arguments is a compile error on the argument, with the remedy in it:
/// ```text
/// error: unknown argument `leese`; did you mean `lease`?
///  --> src/main.rs:4:27
///   |
/// 4 | #[idempotent(key = order, leese = "30s")]
///   |                           ^^^^^
/// ```
#[proc_macro_attribute]
pub fn idempotent(args: TokenStream, item: TokenStream) -> TokenStream {
    let (args, item) = (args.into(), proc_macro2::TokenStream::from(item));
    match attribute(args, item.clone()) {
        Ok(tokens) => tokens.into(),
        Err(error) => {
            let (error, kept) = (error.to_compile_error(), item::kept(item));
            quote!(#error #kept).into()
        }
    }
}

fn attribute(args: proc_macro2::TokenStream, item: proc_macro2::TokenStream) -> syn::Result<proc_macro2::TokenStream> {
    let mut function = Function::of(item)?;
    let mut plan = Plan::new(syn::parse2(args)?)?;
    if let Some(transaction) = &mut plan.transaction {
        transaction.take(&mut function)?;
    }
    names::check(&plan, &function)?;
    owned::check(&plan, &function)?;
    expand::expand(&plan, function)
}
