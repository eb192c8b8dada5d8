/// A "broker" in memory, with its messages and dead letters.
#[derive(Clone)]
struct Queue {
    messages: mpsc::UnboundedSender<Delivery>,
    aside: Arc<Mutex<Vec<(Delivery, DeadLetter)>>>,
}

struct QueueSource {
    queue: Queue,
    incoming: mpsc::UnboundedReceiver<Delivery>,
}

#[async_trait]
impl Source for QueueSource {
    /// Nothing more than the delivery itself is needed to settle it.
    type Tag = ();

    fn capabilities(&self) -> SourceCapabilities {
        SourceCapabilities::new(DelaySupport::Any)
    }

    fn settler(&self) -> Arc<dyn Settle<()>> {
        Arc::new(self.queue.clone())
    }

    async fn receive(&mut self, room: usize) -> Result<Received<()>, SourceError> {
        let mut deliveries = Vec::new();
        // Dropped, it has taken nothing.
        if self.incoming.recv_many(&mut deliveries, room).await == 0 {
            return Err(SourceError::new(SourceErrorKind::Fatal, "the queue is gone"));
        }
        Ok(Received::Deliveries(deliveries.into_iter().map(|delivery| (delivery, ())).collect()))
    }

    async fn close(&mut self) {
        self.incoming.close();
    }
}

#[async_trait]
impl Settle<()> for Queue {
    async fn settle(&self, delivery: &Delivery, (): &(), settlement: &Settlement) -> Result<(), SourceError> {
        match settlement {
            Settlement::Ack => {}
            Settlement::Retry(retry) => {
                // The marks travel with the message.
                let mut copy = delivery.clone();
                (copy.attempt, copy.first_at) = (Some(retry.attempt), Some(retry.first_at));
                let (messages, after) = (self.messages.clone(), retry.after);
                tokio::spawn(async move {
                    tokio::time::sleep(after).await;
                    messages.send(copy)
                });
            }
            Settlement::DeadLetter(letter) => self.aside.lock().unwrap().push((delivery.clone(), letter.clone())),
            Settlement::GiveBack => drop(self.messages.send(delivery.clone())),
            // Refuses a settlement that this version does not know.
            other => {
                let text = format!("this queue cannot `{}`", other.name());
                return Err(SourceError::new(SourceErrorKind::Fatal, text));
            }
        }
        Ok(())
    }

    async fn keep_alive(&self, _: &[&()]) -> Result<(), SourceError> {
        Ok(())
    }
}

/// Returns a queue, and a source of its messages.
fn queue() -> (Queue, QueueSource) {
    let (messages, incoming) = mpsc::unbounded_channel();
    let queue = Queue { messages, aside: Arc::default() };
    (queue.clone(), QueueSource { queue, incoming })
}
