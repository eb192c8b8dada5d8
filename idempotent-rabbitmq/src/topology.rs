//! Exchanges, queues and bindings, declared from code.
mod exchange;

use idempotent_mq::{SourceError, SourceErrorKind};
use lapin::Channel;
use lapin::options::{ExchangeBindOptions, QueueBindOptions};

pub use self::exchange::Exchange;
use crate::broker_address::BrokerAddress;
use crate::error::{failed, is_not_found};
use crate::field::{FieldValue, Fields, table};
use crate::message::LONGEST;
use crate::{Queue, SettingError};

/// Exchanges, queues and bindings that a program declares at its start.
///
/// Declaring existing objects changes nothing. An existing object with other settings is an error that names the
/// object. Declarations never delete or change an object.
///
/// ```no_run
/// use idempotent_rabbitmq::{Exchange, Queue, Topology};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// Topology::new()
///     .exchange(Exchange::topic("orders"))
///     .exchange(Exchange::headers("reports"))
///     .queue(Queue::quorum("billing"))
///     .bind("billing", "orders", "order.*.paid")
///     .bind_all_headers("billing", "reports", [("kind", "invoice"), ("region", "eu")])
///     .declare("amqp://guest:guest@localhost/%2f")
///     .await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct Topology {
    exchanges: Vec<Exchange>,
    queues: Vec<Queue>,
    bindings: Vec<TopologyBinding>,
}

#[derive(Clone, Debug)]
struct TopologyBinding {
    from: String,
    to: BindingTarget,
    key: String,
    headers: Fields,
}

#[derive(Clone, Debug)]
enum BindingTarget {
    Queue(String),
    Exchange(String),
}

impl Topology {
    /// Creates an empty topology.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an exchange.
    pub fn exchange(mut self, exchange: Exchange) -> Self {
        self.exchanges.push(exchange);
        self
    }

    /// Adds a queue and the queue of its dead letters. An [existing](Queue::existing) queue is only checked.
    pub fn queue(mut self, queue: Queue) -> Self {
        self.queues.push(queue);
        self
    }

    /// Binds a queue to a direct, topic or fanout exchange. A fanout exchange ignores the key.
    pub fn bind(self, queue: impl Into<String>, exchange: impl Into<String>, key: impl Into<String>) -> Self {
        self.binding(BindingTarget::Queue(queue.into()), exchange, key, Fields::new())
    }

    /// Binds an exchange to another exchange, from which it receives messages with this key.
    pub fn bind_exchange(self, to: impl Into<String>, from: impl Into<String>, key: impl Into<String>) -> Self {
        self.binding(BindingTarget::Exchange(to.into()), from, key, Fields::new())
    }

    /// Binds a queue to a headers exchange, for messages that have all of these headers. The broker ignores headers
    /// that begin with `x-`.
    pub fn bind_all_headers<N: Into<String>, V: Into<FieldValue>>(
        self,
        queue: impl Into<String>,
        exchange: impl Into<String>,
        headers: impl IntoIterator<Item = (N, V)>,
    ) -> Self {
        self.binding(BindingTarget::Queue(queue.into()), exchange, "", matching("all", headers))
    }

    /// Binds a queue to a headers exchange, for messages that have any of these headers. The broker ignores headers
    /// that begin with `x-`.
    pub fn bind_any_header<N: Into<String>, V: Into<FieldValue>>(
        self,
        queue: impl Into<String>,
        exchange: impl Into<String>,
        headers: impl IntoIterator<Item = (N, V)>,
    ) -> Self {
        self.binding(BindingTarget::Queue(queue.into()), exchange, "", matching("any", headers))
    }

    fn binding(mut self, to: BindingTarget, from: impl Into<String>, key: impl Into<String>, headers: Fields) -> Self {
        self.bindings.push(TopologyBinding { from: from.into(), to, key: key.into(), headers });
        self
    }

    /// Declares all exchanges, then all queues, then all bindings, in one attempt. The URL has the form of
    /// [`RabbitSource::builder`](crate::RabbitSource::builder).
    ///
    /// # Errors
    /// [`Fatal`](SourceErrorKind::Fatal): an invalid URL or name, missing rights, an existing object with other
    /// settings, or a binding of a missing object. The error names the exchange, queue or binding.
    /// [`Transient`](SourceErrorKind::Transient): the broker is unreachable.
    ///
    /// # Cancellation
    /// Some of the objects may have been declared.
    pub async fn declare(&self, url: &str) -> Result<(), SourceError> {
        let address =
            BrokerAddress::parse(url).and_then(|address| self.check().map(|()| address)).map_err(impossible)?;
        let connect = async {
            let connection = address.connect("idempotent: topology").await?;
            let channel = connection.create_channel().await?;
            Ok((connection, channel))
        };
        let (_connection, channel) = connect.await.map_err(|error| failed("cannot connect to the broker", error))?;
        for exchange in &self.exchanges {
            exchange.declare(&channel).await.map_err(|error| differs("exchange", &exchange.name, error))?;
        }
        for queue in &self.queues {
            queue.declare(&channel).await.map_err(|error| differs("queue", &queue.name, error))?;
            queue.declare_dead(&channel).await.map_err(|error| differs("queue", &queue.dead(), error))?;
        }
        for binding in &self.bindings {
            binding.declare(&channel).await.map_err(|error| binding.failed(error))?;
        }
        Ok(())
    }

    fn check(&self) -> Result<(), SettingError> {
        self.exchanges.iter().try_for_each(Exchange::check)?;
        self.queues.iter().try_for_each(Queue::check)?;
        self.bindings.iter().try_for_each(TopologyBinding::check)
    }
}

impl TopologyBinding {
    async fn declare(&self, channel: &Channel) -> lapin::Result<()> {
        let (from, key, headers) = (self.from.as_str().into(), self.key.as_str().into(), table(&self.headers));
        match &self.to {
            BindingTarget::Queue(queue) => {
                channel.queue_bind(queue.as_str().into(), from, key, QueueBindOptions::default(), headers).await
            }
            BindingTarget::Exchange(to) => {
                channel.exchange_bind(to.as_str().into(), from, key, ExchangeBindOptions::default(), headers).await
            }
        }
    }

    fn to(&self) -> &str {
        match &self.to {
            BindingTarget::Queue(name) | BindingTarget::Exchange(name) => name,
        }
    }

    fn check(&self) -> Result<(), SettingError> {
        let names = [&self.from, &self.key].into_iter().chain(self.headers.keys());
        if names.chain([&self.to().to_owned()]).any(|name| name.len() > LONGEST) {
            return Err(SettingError::new(format!("a name, key or header of a binding has more than {LONGEST} bytes")));
        }
        if self.from.is_empty() || self.to().is_empty() {
            return Err(SettingError::new(
                "a binding names no exchange or no queue: the default exchange needs no binding, because each queue is bound to it by \
                 its name",
            ));
        }
        // Only the way of matching: such a binding matches all messages or none.
        if self.headers.len() == 1 {
            return Err(SettingError::new("a binding by headers has no header: name at least one, or use bind()"));
        }
        Ok(())
    }

    fn failed(&self, error: lapin::Error) -> SourceError {
        let (from, to) = (&self.from, self.to());
        let what = match is_not_found(&error) {
            true => "one of them does not exist: add it to the topology, or declare it first",
            false => "see the cause",
        };
        failed(&format!("cannot bind `{to}` to the exchange `{from}`: {what}"), error)
    }
}

fn matching<N: Into<String>, V: Into<FieldValue>>(how: &str, headers: impl IntoIterator<Item = (N, V)>) -> Fields {
    let headers = headers.into_iter().map(|(name, value)| (name.into(), value.into()));
    headers.chain([("x-match".to_owned(), how.into())]).collect()
}

fn differs(what: &str, name: &str, error: lapin::Error) -> SourceError {
    let remedy = "the cause names the difference; declare it with its current settings, or delete it first";
    failed(&format!("cannot declare the {what} `{name}`: {remedy}"), error)
}

fn impossible(error: SettingError) -> SourceError {
    SourceError::new(SourceErrorKind::Fatal, error.to_string())
}
