//! Handlers that take many messages at once. Each delivery still has a worker of its own, which waits here for others;
//! the first of a batch leads it.
mod gather;

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use idempotent_core::{BatchItem, Call, Clock, Executor, Handler, Json, Key, Policy, RunSummary};
use tokio::sync::mpsc;

use self::gather::{Gathering, Member, Turn};
use super::keyed::{ByVerdict, Naming, Reply};
use super::{Begun, Desk, Ended, Prepared, Reading, Unfit, Work, guarded};
use crate::{Delivery, HandlerResult, IntoHandlerResult, Message, SetupError};

/// A handler of batches, with the key that its messages are told apart by.
pub(crate) struct Batching<T, F> {
    pub(crate) reading: Arc<Reading<T>>,
    pub(crate) naming: Arc<Naming<T>>,
    pub(crate) handler: Arc<F>,
    gathering: Arc<Gathering<Item<T>>>,
}

/// What a member of a batch brings.
struct Item<T> {
    call: Call,
    key: Option<Key>,
    message: Message<T>,
}

impl<T, F> Batching<T, F> {
    pub(crate) fn new(reading: Reading<T>, naming: Naming<T>, most: usize, handler: F) -> Self {
        let (reading, naming, handler) = (Arc::new(reading), Arc::new(naming), Arc::new(handler));
        Self { reading, naming, handler, gathering: Arc::new(Gathering::new(most)) }
    }
}

impl<T, F, Fut, A> Work for Batching<T, F>
where
    T: Send + 'static,
    F: Fn(Vec<BatchItem<Message<T>>>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Vec<A>> + Send + 'static,
    A: IntoHandlerResult + 'static,
{
    fn prepare(&self, desk: &Desk, delivery: Arc<Delivery>) -> Result<Prepared, Unfit> {
        let (message, lane) = self.reading.read(desk, delivery)?;
        let (identity, call) = guarded(|| Ok(self.naming.call(desk, &message)))?;
        let key = identity.key(desk.executor.namespace()).ok();
        let item = Item { call, key, message };
        let (executor, handler) = (desk.executor.clone(), self.handler.clone());
        let gathering = self.gathering.clone();
        let run = move |begun: Begun| {
            async move {
                let (tell, mut told) = mpsc::unbounded_channel();
                gathering.join(Member { item, begun, tell }).await;
                loop {
                    match told.recv().await {
                        Some(Turn::Lead(batch)) => lead(&executor, &gathering, &*handler, batch).await,
                        Some(Turn::Ended(ended)) => return ended,
                        None => return without_its_leader(&**executor.clock()).await,
                    }
                }
            }
            .boxed()
        };
        Ok(Prepared { lane, run: Box::new(run) })
    }

    fn policy(&self) -> Option<Policy> {
        Some(self.naming.policy)
    }

    fn check(&self, concurrency: usize) -> Result<(), SetupError> {
        let most = self.gathering.most();
        let refuse = |text: String| Err(SetupError::Setting(text.into()));
        if most == 0 {
            return refuse("run_batch is given at most 0 messages: nothing would ever run".to_owned());
        }
        if most > concurrency {
            return refuse(format!(
                "run_batch is given at most {most} messages, but only {concurrency} run side by side, each with a place \
                 of its own: raise `concurrency` to {most} or more"
            ));
        }
        match self.naming.key.or_unprotected {
            true => refuse(
                "run_batch with a key that is `or_unprotected`: a message without a key has no lease to hand over. Take \
                 `run`, or give each message a key"
                    .to_owned(),
            ),
            false => Ok(()),
        }
    }

    /// Batches of one consumer only: another has an executor and a group of its own.
    fn for_one_consumer(self: Arc<Self>) -> Arc<dyn Work> {
        Arc::new(Self {
            reading: self.reading.clone(),
            naming: self.naming.clone(),
            handler: self.handler.clone(),
            gathering: Arc::new(Gathering::new(self.gathering.most())),
        })
    }
}

/// Runs a batch, and tells each member what it came to.
async fn lead<T, F, Fut, A>(
    executor: &Executor,
    gathering: &Arc<Gathering<Item<T>>>,
    handler: &F,
    batch: Vec<Member<Item<T>>>,
) where
    T: Send + 'static,
    F: Fn(Vec<BatchItem<Message<T>>>) -> Fut,
    Fut: Future<Output = Vec<A>>,
    A: IntoHandlerResult,
{
    // Also where it is dropped midway.
    let _over = gathering.running();
    let (mut items, mut begun, mut others) = (Vec::new(), Vec::new(), Vec::new());
    for (at, member) in batch.into_iter().enumerate() {
        let Item { call, key, message } = member.item;
        items.push((call, (at, message)));
        begun.push(member.begun);
        others.push((member.tell, key));
    }
    let attempts = Arc::new(Mutex::new(vec![None; items.len()]));
    let claimed = attempts.clone();
    let handle = Handler::<ByVerdict, Json, _, _>::batch(move |given: Vec<BatchItem<(usize, Message<T>)>>| {
        // A leader that is dropped takes all with it, so from here on all of them have begun.
        begun.iter().for_each(Begun::set);
        let mut mine = Vec::new();
        for BatchItem { item: (at, message), lease, .. } in given {
            begun[at].set_claimed();
            claimed.lock().unwrap_or_else(PoisonError::into_inner)[at] = Some(lease.attempt());
            mine.push(BatchItem::new(message, lease));
        }
        handled(handler, mine)
    });
    let answers = executor.run_batch(items, handle).await;
    let attempts = std::mem::take(&mut *attempts.lock().unwrap_or_else(PoisonError::into_inner));
    for ((answer, attempt), (tell, key)) in answers.into_iter().zip(attempts).zip(others) {
        let (verdict, rejection) = match answer.output {
            Reply::Said(verdict) => (verdict, None),
            Reply::Rejected(text) => (HandlerResult::Done, Some(text)),
        };
        let captured = Some(RunSummary::new(answer.outcome, key, attempt));
        // One whose worker was dropped meanwhile needs no answer.
        let _ = tell.send(Turn::Ended(Ended { captured, verdict, rejection }));
    }
}

/// A panic is a failure of the messages it was given.
async fn handled<T, F, Fut, A>(handler: &F, given: Vec<BatchItem<Message<T>>>) -> Vec<Reply>
where
    F: Fn(Vec<BatchItem<Message<T>>>) -> Fut,
    Fut: Future<Output = Vec<A>>,
    A: IntoHandlerResult,
{
    let messages = given.len();
    let answered = AssertUnwindSafe(async {
        let answers = handler(given).await;
        answers.into_iter().map(|answer| Reply::Said(answer.into_handler_result())).collect()
    });
    let panicked = || Reply::Said(HandlerResult::Again { after: None, error: "the handler panicked".into() });
    answered.catch_unwind().await.unwrap_or_else(|_| std::iter::repeat_with(panicked).take(messages).collect())
}

/// Its leader was dropped, as all runs are when a consumer closes: this one is then dropped as well. Anything else is
/// not foreseen, and must not keep its place for ever.
async fn without_its_leader(clock: &dyn Clock) -> Ended {
    const AT_MOST: Duration = Duration::from_secs(5);
    clock.sleep_until(clock.now() + AT_MOST).await;
    Ended {
        captured: None,
        verdict: HandlerResult::Again { after: None, error: "its batch ended without an answer".into() },
        rejection: None,
    }
}
