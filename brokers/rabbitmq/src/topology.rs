//! Declaration of exchanges, queues and bindings.
mod exchange;

use idempotent_mq::{SourceError, SourceErrorKind};
use lapin::Channel;
use lapin::options::{ExchangeBindOptions, QueueBindOptions};

pub use self::exchange::Exchange;
use crate::error::{answered, failure, is_not_found, unconnected};
use crate::field_value::{FieldValue, Fields, field_table};
use crate::options::{BrokerUrl, Server};
use crate::properties::MAX_SHORT_STRING;
use crate::{Queue, SettingError};

/// A set of exchanges, queues and bindings, which a program declares at its start.
///
/// A declaration never changes or deletes anything. Existing exchanges, queues and bindings with equal settings are
/// accepted. An exchange or queue with other settings is an error.
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
    bindings: Vec<Binding>,
}

#[derive(Clone, Debug)]
struct Binding {
    from: String,
    to: Destination,
    key: String,
    headers: Fields,
}

#[derive(Clone, Debug)]
enum Destination {
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

    /// Adds a queue and its dead letter queue. An [existing](Queue::existing) queue is only checked.
    pub fn queue(mut self, queue: Queue) -> Self {
        self.queues.push(queue);
        self
    }

    /// Binds a queue to a direct, topic or fanout exchange. A fanout exchange ignores the key.
    pub fn bind(self, queue: impl Into<String>, exchange: impl Into<String>, key: impl Into<String>) -> Self {
        self.binding(Destination::Queue(queue.into()), exchange, key, Fields::new())
    }

    /// Binds the exchange `to` to the exchange `from`, for messages with this key.
    pub fn bind_exchange(self, to: impl Into<String>, from: impl Into<String>, key: impl Into<String>) -> Self {
        self.binding(Destination::Exchange(to.into()), from, key, Fields::new())
    }

    /// Binds a queue to a headers exchange, for messages that have all of these headers. The broker ignores
    /// headers that begin with `x-`.
    pub fn bind_all_headers<N: Into<String>, V: Into<FieldValue>>(
        self,
        queue: impl Into<String>,
        exchange: impl Into<String>,
        headers: impl IntoIterator<Item = (N, V)>,
    ) -> Self {
        self.binding(Destination::Queue(queue.into()), exchange, "", matching("all", headers))
    }

    /// Binds a queue to a headers exchange, for messages that have any of these headers. The broker ignores
    /// headers that begin with `x-`.
    pub fn bind_any_header<N: Into<String>, V: Into<FieldValue>>(
        self,
        queue: impl Into<String>,
        exchange: impl Into<String>,
        headers: impl IntoIterator<Item = (N, V)>,
    ) -> Self {
        self.binding(Destination::Queue(queue.into()), exchange, "", matching("any", headers))
    }

    fn binding(mut self, to: Destination, from: impl Into<String>, key: impl Into<String>, headers: Fields) -> Self {
        self.bindings.push(Binding { from: from.into(), to, key: key.into(), headers });
        self
    }

    /// Declares the exchanges, then the queues, then the bindings, in a single attempt.
    ///
    /// # Errors
    /// [`Fatal`](SourceErrorKind::Fatal): the URL or a name is invalid, a permission is missing, an exchange or queue
    /// has other settings, or a binding names a missing exchange or queue. The error names the exchange, queue or
    /// binding. [`Transient`](SourceErrorKind::Transient): the broker is unreachable.
    ///
    /// # Cancellation
    /// Some of the topology may be declared.
    pub async fn declare(&self, server: impl Into<Server>) -> Result<(), SourceError> {
        let url = BrokerUrl::of(server.into()).and_then(|url| self.check().map(|()| url)).map_err(invalid)?;
        let connect = async {
            let connection = url.connect("idempotent: topology").await?;
            let channel = connection.create_channel().await?;
            Ok((connection, channel))
        };
        let (connection, channel) = connect.await.map_err(|error| unconnected(&url, error))?;
        for exchange in &self.exchanges {
            answered(exchange.declare(&channel))
                .await
                .map_err(|error| not_declared("exchange", &exchange.name, error))?;
        }
        for queue in &self.queues {
            queue.check_support(&connection).await?;
            answered(queue.declare(&channel)).await.map_err(|error| not_declared("queue", &queue.name, error))?;
            answered(queue.declare_dead(&channel))
                .await
                .map_err(|error| not_declared("queue", &queue.dead_name(), error))?;
        }
        for binding in &self.bindings {
            answered(binding.declare(&channel)).await.map_err(|error| binding.not_bound(error))?;
        }
        Ok(())
    }

    fn check(&self) -> Result<(), SettingError> {
        self.exchanges.iter().try_for_each(Exchange::check)?;
        self.queues.iter().try_for_each(Queue::check)?;
        self.bindings.iter().try_for_each(Binding::check)
    }
}

impl Binding {
    async fn declare(&self, channel: &Channel) -> lapin::Result<()> {
        let (from, key, headers) = (self.from.as_str().into(), self.key.as_str().into(), field_table(&self.headers));
        match &self.to {
            Destination::Queue(queue) => {
                channel.queue_bind(queue.as_str().into(), from, key, QueueBindOptions::default(), headers).await
            }
            Destination::Exchange(to) => {
                channel.exchange_bind(to.as_str().into(), from, key, ExchangeBindOptions::default(), headers).await
            }
        }
    }

    fn to(&self) -> &str {
        match &self.to {
            Destination::Queue(name) | Destination::Exchange(name) => name,
        }
    }

    fn check(&self) -> Result<(), SettingError> {
        let names = [&self.from, &self.key].into_iter().chain(self.headers.keys());
        if names.chain([&self.to().to_owned()]).any(|name| name.len() > MAX_SHORT_STRING) {
            let text = format!("binding: a name, key or header is too long; use at most {MAX_SHORT_STRING} bytes");
            return Err(SettingError::new(text));
        }
        if self.from.is_empty() || self.to().is_empty() {
            return Err(SettingError::new(
                "binding: the name of the exchange or the queue is empty; name both, or remove the binding, since the \
                 default exchange needs none",
            ));
        }
        // A binding with `x-match` alone matches all messages or none.
        if self.headers.len() == 1 {
            return Err(SettingError::new(
                "binding: the list of headers is empty; name at least one header, or use bind()",
            ));
        }
        Ok(())
    }

    fn not_bound(&self, error: lapin::Error) -> SourceError {
        let (from, to) = (&self.from, self.to());
        let detail = match is_not_found(&error) {
            true => "one of them does not exist; add it to the topology, or declare it first",
            false => "the broker refuses the binding; see the cause",
        };
        failure(&format!("binding `{to}` to the exchange `{from}`: {detail}"), error)
    }
}

fn matching<N: Into<String>, V: Into<FieldValue>>(mode: &str, headers: impl IntoIterator<Item = (N, V)>) -> Fields {
    let headers = headers.into_iter().map(|(name, value)| (name.into(), value.into()));
    headers.chain([("x-match".to_owned(), mode.into())]).collect()
}

fn not_declared(what: &str, name: &str, error: lapin::Error) -> SourceError {
    let detail = "the cause shows what differs or is missing; use its existing settings, or delete it first";
    failure(&format!("declaring the {what} `{name}`: {detail}"), error)
}

fn invalid(error: SettingError) -> SourceError {
    SourceError::new(SourceErrorKind::Fatal, error.to_string())
}
