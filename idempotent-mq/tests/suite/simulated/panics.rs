//! Panics of a source, of its settler, and of the message log.
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};

use async_trait::async_trait;
use idempotent_core::Policy;
use idempotent_mq::{
    Delivery, DeliveryResult, KeyFrom, LogError, LoggedDelivery, Message, MessageLog, Messages, Received, SenderState,
    Settle, Settlement, Source, SourceCapabilities, SourceError, SourceErrorKind,
};

use crate::broker::SimulatedSource;
use crate::world::{Job, World, ms, secs};

/// The call that panics: on arrival, or on settlement.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Call {
    Receive,
    Settle,
}

/// A source that panics at its first call of one kind.
struct Panicking(SimulatedSource, Call, Arc<AtomicBool>);

struct PanickingSettler(Arc<dyn Settle<<SimulatedSource as Source>::Tag>>, Call, AtomicBool);

#[async_trait]
impl Source for Panicking {
    type Tag = <SimulatedSource as Source>::Tag;

    fn capabilities(&self) -> SourceCapabilities {
        self.0.capabilities()
    }
    fn settler(&self) -> Arc<dyn Settle<Self::Tag>> {
        Arc::new(PanickingSettler(self.0.settler(), self.1, AtomicBool::new(false)))
    }
    async fn receive(&mut self, room: usize) -> Result<Received<Self::Tag>, SourceError> {
        assert!(self.1 != Call::Receive || self.2.swap(true, SeqCst), "as told");
        self.0.receive(room).await
    }
    async fn close(&mut self) {
        self.0.close().await;
    }
}

#[async_trait]
impl Settle<<SimulatedSource as Source>::Tag> for PanickingSettler {
    async fn settle(
        &self,
        delivery: &Delivery,
        tag: &<SimulatedSource as Source>::Tag,
        settlement: &Settlement,
    ) -> Result<(), SourceError> {
        assert!(self.1 != Call::Settle || self.2.swap(true, SeqCst), "as told");
        self.0.settle(delivery, tag, settlement).await
    }
    async fn keep_alive(&self, held: &[&<SimulatedSource as Source>::Tag]) -> Result<(), SourceError> {
        self.0.keep_alive(held).await
    }
}

/// A log that panics when it records deliveries, or results.
#[derive(Debug)]
struct PanickingLog(Call);

#[async_trait]
impl MessageLog for PanickingLog {
    async fn received(&self, receipts: &[LoggedDelivery]) -> Result<Vec<SenderState>, LogError> {
        assert!(self.0 != Call::Receive, "as told");
        Ok(vec![SenderState::Unconfirmed; receipts.len()])
    }
    async fn concluded(&self, _: &LoggedDelivery, _: DeliveryResult) -> Result<(), LogError> {
        assert!(self.0 != Call::Settle, "as told");
        Ok(())
    }
}

#[tokio::test]
async fn a_source_that_panics_stops_its_consumer_with_an_error() {
    let world = World::new();
    let panicked = Arc::new(AtomicBool::new(false));
    let source = Panicking(world.broker.connect(), Call::Receive, panicked.clone());
    let handling = Job::ok(&world, ms(1)).by_id();
    let process = world.consume_from(source, "billing", Policy::new(), handling, |builder| builder).await;
    world.clock.advance(secs(60)).await;
    assert!(panicked.load(SeqCst) && process.task.is_finished(), "the consumer would wait for ever");
    let error = process.task.await.unwrap().unwrap_err();
    assert!(error.kind() == SourceErrorKind::Fatal && error.to_string().contains("panicked"), "{error}");
}

#[tokio::test]
async fn a_settler_that_panics_leaves_one_delivery_unsettled_and_the_consumer_continues() {
    let world = World::new();
    let source = Panicking(world.broker.connect(), Call::Settle, Arc::default());
    let runs = Arc::<AtomicU32>::default();
    let counted = runs.clone();
    // The next messages need the lane and the place of the one whose worker fails.
    let in_one_lane = KeyFrom::message("lane", |_: &Message<()>| "lane");
    let handling = Messages::raw().ordered_by(in_one_lane).keyed(KeyFrom::message_id()).run(move |_: Message<()>| {
        counted.fetch_add(1, SeqCst);
        async { Ok::<_, String>(()) }
    });
    let mut process =
        world.consume_from(source, "billing", Policy::new(), handling, |builder| builder.concurrency(1)).await;
    world.broker.send_all(&["m1", "m2", "m3"]);
    world.clock.advance(secs(1)).await;
    let counts = process.counts();
    assert_eq!((counts.received, counts.acked, counts.unsettled, runs.load(SeqCst)), (3, 2, 1, 3));
    process.stop().await;
    assert!(process.task.is_finished(), "the drain waits for a worker that is gone");
}

#[tokio::test]
async fn a_message_log_that_panics_at_a_delivery_stops_its_consumer_and_at_a_result_leaves_one_unsettled() {
    for call in [Call::Receive, Call::Settle] {
        let world = World::new();
        let handling = Job::ok(&world, ms(1)).by_id();
        let log = Arc::new(PanickingLog(call));
        let mut process = world.consume_by(Policy::new(), handling, |builder| builder.log(log)).await;
        world.broker.send_all(&["m1"]);
        world.clock.advance(secs(60)).await;
        let counts = process.counts();
        assert_eq!((counts.acked, process.task.is_finished()), (0, call == Call::Receive));
        if call == Call::Settle {
            assert_eq!((counts.received, counts.unsettled), (1, 1));
            process.stop().await;
            continue;
        }
        let error = process.task.await.unwrap().unwrap_err();
        assert!(error.kind() == SourceErrorKind::Fatal && error.to_string().contains("panicked"), "{error}");
    }
}
