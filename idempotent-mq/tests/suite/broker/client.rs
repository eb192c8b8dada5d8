//! The broker's client: what an adapter would be.
use std::sync::Arc;

use async_trait::async_trait;
use idempotent_core::Clock;
use idempotent_mq::{Delivery, Received, Settle, Settlement, Source, SourceCapabilities, SourceError, SourceErrorKind};

use super::{Broker, Holding, What};

pub struct SimulatedSource {
    broker: Broker,
    session: u32,
}

impl SimulatedSource {
    pub(super) fn new(broker: Broker, session: u32) -> Self {
        Self { broker, session }
    }
}

#[async_trait]
impl Source for SimulatedSource {
    type Tag = u64;

    fn capabilities(&self) -> SourceCapabilities {
        self.broker.state().ways.capabilities.clone()
    }

    fn settler(&self) -> Arc<dyn Settle<u64>> {
        Arc::new(SimulatedSettler { broker: self.broker.clone(), session: self.session })
    }

    async fn receive(&mut self, room: usize) -> Result<Received<u64>, SourceError> {
        self.broker.state().rooms.push(room);
        loop {
            let changed = self.broker.changed.notified();
            if let Some(kind) = self.broker.state().receive_faults.pop_front() {
                return Err(SourceError::new(kind, "as told"));
            }
            match self.broker.hand_out(self.session, room) {
                Ok(received) => return Ok(received),
                Err(None) => changed.await,
                Err(Some(next)) => {
                    tokio::select! {
                        () = changed => {}
                        () = self.broker.clock.sleep_until(next) => {}
                    }
                }
            }
        }
    }

    async fn close(&mut self) {
        let hangs = {
            let mut state = self.broker.state();
            self.broker.write(&mut state, "", What::Closed);
            state.close_hangs
        };
        if hangs {
            std::future::pending::<()>().await;
        }
    }
}

struct SimulatedSettler {
    broker: Broker,
    session: u32,
}

#[async_trait]
impl Settle<u64> for SimulatedSettler {
    async fn settle(&self, delivery: &Delivery, tag: &u64, settlement: &Settlement) -> Result<(), SourceError> {
        let broker = &self.broker;
        if take_one(&mut broker.state().silent) {
            std::future::pending::<()>().await;
        }
        let now = broker.clock.now();
        let mut state = broker.state();
        broker.take_back(&mut state);
        let mine = |holding: &Holding| holding.tag == *tag && holding.session == self.session;
        let Some(at) = state.held.iter().position(mine) else {
            broker.write(&mut state, delivery.id.as_deref().unwrap_or(""), What::Refused(SourceErrorKind::Gone));
            return Err(SourceError::new(SourceErrorKind::Gone, "its channel is closed"));
        };
        if let Some(kind) = state.faults.pop_front() {
            let name = state.held[at].stored.name.clone();
            broker.write(&mut state, &name, What::Refused(kind));
            return Err(SourceError::new(kind, "as told"));
        }
        let Holding { mut stored, .. } = state.held.remove(at);
        broker.write(&mut state, &stored.name, What::Settled(settlement.clone()));
        match settlement {
            Settlement::Retry(retry) => {
                if state.ways.marks {
                    stored.delivery.attempt = Some(retry.attempt);
                    stored.delivery.first_at = Some(retry.first_at);
                }
                let step = state.ways.steps.get(stored.times as usize - 1).copied();
                state.waiting.push_back((now + step.unwrap_or(retry.after), stored));
            }
            Settlement::GiveBack => state.waiting.push_front((now, stored)),
            Settlement::DeadLetter(letter) => state.dead.push((stored.delivery, letter.clone())),
            _ => {}
        }
        drop(state);
        broker.changed.notify_waiters();
        Ok(())
    }

    async fn keep_alive(&self, held: &[&u64]) -> Result<(), SourceError> {
        let broker = &self.broker;
        if take_one(&mut broker.state().hanging) {
            std::future::pending::<()>().await;
        }
        let mut state = broker.state();
        broker.take_back(&mut state);
        let until = state.ways.hold.map(|hold| broker.clock.now() + hold);
        let mut names = Vec::new();
        for holding in state.held.iter_mut().filter(|holding| held.contains(&&holding.tag)) {
            holding.until = until;
            names.push(holding.stored.name.clone());
        }
        state.strangers += held.len() - names.len();
        for name in names {
            broker.write(&mut state, &name, What::KeptAlive);
        }
        Ok(())
    }
}

fn take_one(left: &mut u32) -> bool {
    let some = *left > 0;
    *left = left.saturating_sub(1);
    some
}
