//! Handlers of message batches. Each delivery keeps a worker of its own, which waits here for other deliveries. The worker of
//! the first delivery runs the batch.
mod queue;

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::FutureExt;
use idempotent_core::{BatchItem, BatchOutput, Call, Clock, Executor, Handler, Json, Policy, RunSummary};
use tokio::sync::oneshot;

use self::queue::{BatchMember, BatchQueue, MemberEvent};
use super::keyed::{KeySettings, ResultStrategy, RunReply};
use super::{
    ConsumerContext, DeliveryHandler, HandlerEnd, MessageDecoder, PreparedRun, RunProgress, UnusableDelivery, guarded,
};
use crate::{Delivery, HandlerResult, IntoHandlerResult, Message, SetupError};

/// A handler of batches with the key of its messages.
pub(crate) struct BatchHandler<T, F> {
    pub(crate) reading: Arc<MessageDecoder<T>>,
    pub(crate) naming: Arc<KeySettings<T>>,
    pub(crate) handler: Arc<F>,
    gathering: Arc<BatchQueue<BatchEntry<T>>>,
}

/// The call and the message of a member.
struct BatchEntry<T> {
    call: Call,
    message: Message<T>,
}

impl<T, F> BatchHandler<T, F> {
    pub(crate) fn new(reading: MessageDecoder<T>, naming: KeySettings<T>, most: usize, handler: F) -> Self {
        let (reading, naming, handler) = (Arc::new(reading), Arc::new(naming), Arc::new(handler));
        Self { reading, naming, handler, gathering: Arc::new(BatchQueue::new(most)) }
    }
}

impl<T, F, Fut, A> DeliveryHandler for BatchHandler<T, F>
where
    T: Send + 'static,
    F: Fn(Vec<BatchItem<Message<T>>>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Vec<A>> + Send + 'static,
    A: IntoHandlerResult + 'static,
{
    fn prepare(
        &self,
        context: &ConsumerContext,
        delivery: Arc<Delivery>,
        progress: Arc<dyn RunProgress>,
    ) -> Result<PreparedRun, UnusableDelivery> {
        let (message, lane) = self.reading.read(context, delivery)?;
        let call = guarded(|| Ok(self.naming.call(context.identity(&self.naming.key, &message), &message)))?;
        let item = BatchEntry { call, message };
        let (executor, handler, claims) = (context.executor.clone(), self.handler.clone(), context.claims.clone());
        let gathering = self.gathering.clone();
        let run = async move {
            let (tell, told) = oneshot::channel();
            // The queue keeps no delivery whose worker was dropped.
            gathering.join(BatchMember { item, progress: Arc::downgrade(&progress), tell }).await;
            match told.await {
                Ok(MemberEvent::Lead(item, others)) => {
                    // Boxed, because one member of a batch leads it.
                    let run = Box::pin(lead(&executor, &gathering, &*handler, (item, progress), others));
                    Executor::scope_without_executor(claims, run).await
                }
                Ok(MemberEvent::Ended(ended)) => ended,
                Err(_) => Box::pin(without_its_leader(&**executor.clock())).await,
            }
        };
        Ok(PreparedRun { lane, run: run.boxed() })
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
                "run_batch takes up to {most} messages, but the concurrency of the consumer is {concurrency}: raise \
                 `concurrency` to {most} or more"
            ));
        }
        match self.naming.key.or_unprotected {
            true => refuse(
                "run_batch with a key that is `or_unprotected`: a message without a key has no lease. Use `run`, or \
                 give each message a key"
                    .to_owned(),
            ),
            false => Ok(()),
        }
    }

    /// Returns a handler with its own batches, because another consumer has another executor and group.
    fn for_one_consumer(self: Arc<Self>) -> Arc<dyn DeliveryHandler> {
        Arc::new(Self {
            reading: self.reading.clone(),
            naming: self.naming.clone(),
            handler: self.handler.clone(),
            gathering: Arc::new(BatchQueue::new(self.gathering.most())),
        })
    }
}

/// Runs a batch, sends each other member its end, and returns the end of the first.
async fn lead<T, F, Fut, A>(
    executor: &Executor,
    gathering: &Arc<BatchQueue<BatchEntry<T>>>,
    handler: &F,
    (first, own): (BatchEntry<T>, Arc<dyn RunProgress>),
    others: Vec<BatchMember<BatchEntry<T>>>,
) -> HandlerEnd
where
    T: Send + 'static,
    F: Fn(Vec<BatchItem<Message<T>>>) -> Fut,
    Fut: Future<Output = Vec<A>>,
    A: IntoHandlerResult,
{
    // Also ends the batch if this future is dropped.
    let _over = gathering.running();
    let size = others.len() + 1;
    let (mut items, mut progress, mut tells) =
        (Vec::with_capacity(size), Vec::with_capacity(size), Vec::with_capacity(size));
    items.push((first.call, (0, first.message)));
    progress.push(Arc::downgrade(&own));
    for (at, BatchMember { item, progress: theirs, tell }) in (1..).zip(others) {
        items.push((item.call, (at, item.message)));
        progress.push(theirs);
        tells.push(tell);
    }
    let handle = Handler::<ResultStrategy, Json, _, _>::batch(move |given: Vec<BatchItem<(usize, Message<T>)>>| {
        // A dropped leader drops all members, so all of them have begun.
        progress.iter().filter_map(Weak::upgrade).for_each(|progress| progress.begin());
        let claimed = given.into_iter().map(|BatchItem { item: (at, message), lease, .. }| {
            if let Some(progress) = progress[at].upgrade() {
                progress.begin_claimed();
            }
            BatchItem::new(message, lease)
        });
        handled(handler, claimed.collect())
    });
    let mut ends = executor.run_batch(items, handle).await.into_iter().map(ended);
    // A batch has one answer for each item.
    let own = ends.next().unwrap_or_else(unanswered);
    for (end, tell) in ends.zip(tells) {
        // A member whose worker was dropped needs no answer.
        let _ = tell.send(MemberEvent::Ended(end));
    }
    own
}

fn ended(answer: BatchOutput<RunReply>) -> HandlerEnd {
    let (verdict, rejection) = match answer.output {
        RunReply::Said(verdict) => (verdict, None),
        RunReply::Rejected(text) => (HandlerResult::Done, Some(text)),
    };
    let captured = Some(RunSummary::new(answer.outcome, answer.key, answer.attempt));
    HandlerEnd { captured, verdict, rejection }
}

/// Runs the handler. A panic fails all messages of the batch.
async fn handled<T, F, Fut, A>(handler: &F, given: Vec<BatchItem<Message<T>>>) -> Vec<RunReply>
where
    F: Fn(Vec<BatchItem<Message<T>>>) -> Fut,
    Fut: Future<Output = Vec<A>>,
    A: IntoHandlerResult,
{
    let messages = given.len();
    let answered = AssertUnwindSafe(async {
        let answers = handler(given).await;
        answers.into_iter().map(|answer| RunReply::Said(answer.into_handler_result())).collect()
    });
    let panicked = || RunReply::Said(HandlerResult::Again { after: None, error: "the handler panicked".into() });
    answered.catch_unwind().await.unwrap_or_else(|_| std::iter::repeat_with(panicked).take(messages).collect())
}

/// Ends a member whose leader was dropped. A closing consumer drops this future as well. In any other case, the member fails
/// after some seconds instead of waiting forever.
async fn without_its_leader(clock: &dyn Clock) -> HandlerEnd {
    const AT_MOST: Duration = Duration::from_secs(5);
    clock.sleep_until(clock.now() + AT_MOST).await;
    unanswered()
}

fn unanswered() -> HandlerEnd {
    HandlerEnd {
        captured: None,
        verdict: HandlerResult::Again {
            after: None,
            error: "the batch ended without a result for this message".into(),
        },
        rejection: None,
    }
}
