//! The stop signal, the health checks and the metrics of a process.
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, bail};
use axum::Router;
use axum::http::StatusCode;
use axum::routing::get;
use idempotent::metrics::{MetricsCollector, buckets};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// The interval at which counts and sizes are read.
const INTERVAL: Duration = Duration::from_secs(10);
/// The longest time of a probe, which is shorter than that of an orchestrator.
const PROBE: Duration = Duration::from_secs(2);

/// The stop state of a process. Clones share it.
#[derive(Clone)]
pub(crate) struct Stop(watch::Receiver<bool>);

impl Stop {
    /// Starts to listen for SIGTERM and Ctrl-C.
    pub(crate) fn listen() -> anyhow::Result<Self> {
        let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        let (sender, receiver) = watch::channel(false);
        tokio::spawn(async move {
            tokio::select! { _ = terminate.recv() => {} _ = interrupt.recv() => {} }
            tracing::info!("stop signal: draining");
            // All receivers are gone only at the end of the process.
            let _ = sender.send(true);
        });
        Ok(Self(receiver))
    }

    /// Waits for the stop signal.
    pub(crate) async fn requested(mut self) {
        // The sender is dropped only after it has sent.
        let _ = self.0.wait_for(|stop| *stop).await;
    }

    fn is_requested(&self) -> bool {
        *self.0.borrow()
    }
}

/// Installs the recorder of the metrics. Call it before anything records.
pub(crate) fn record_metrics() -> anyhow::Result<PrometheusHandle> {
    let mut builder = PrometheusBuilder::new();
    for (name, bounds) in buckets() {
        builder = builder.set_buckets_for_metric(Matcher::Full(name.to_owned()), bounds)?;
    }
    Ok(builder.install_recorder()?)
}

/// Returns the routes for the orchestrator and for Prometheus.
///
/// None of them calls a store or a broker: a restart repairs neither. A process is not ready after its stop signal.
pub(crate) fn routes<S: Clone + Send + Sync + 'static>(stop: Stop, metrics: PrometheusHandle) -> Router<S> {
    let ready = move || {
        let is_stopping = stop.is_requested();
        async move { if is_stopping { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::NO_CONTENT } }
    };
    Router::new()
        .route("/healthz", get(|| async { StatusCode::NO_CONTENT }))
        .route("/readyz", get(ready))
        .route("/metrics", get(move || async move { metrics.render() }))
}

/// Starts the health checks and the collector of a process without an API. They end with the process, so they answer during
/// the drain.
pub(crate) async fn start(listen: SocketAddr, routes: Router, collector: MetricsCollector) -> anyhow::Result<()> {
    let listener = bind(listen).await?;
    tokio::spawn(async move { axum::serve(listener, routes).await });
    tokio::spawn(async move { collector.run(INTERVAL, std::future::pending()).await });
    Ok(())
}

/// Listens, and prints the address.
pub(crate) async fn bind(listen: SocketAddr) -> anyhow::Result<TcpListener> {
    let listener = TcpListener::bind(listen).await.with_context(|| format!("cannot listen on {listen}"))?;
    println!("listening on http://{}", listener.local_addr()?);
    Ok(listener)
}

/// Requests a URL.
///
/// # Errors
/// There is no answer within 2 s, or the answer is no success.
pub(crate) async fn probe(url: &str) -> anyhow::Result<()> {
    let client = reqwest::Client::builder().timeout(PROBE).build()?;
    let status = client.get(url).send().await?.status();
    if !status.is_success() {
        bail!("{url}: {status}");
    }
    Ok(())
}
