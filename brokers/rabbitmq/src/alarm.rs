//! The alarms of the broker. While its memory or disk is short, the broker reads nothing from connections that publish.
use std::pin::pin;
use std::sync::Arc;

use futures_util::StreamExt;
use lapin::{Connection, Event};
use tokio::sync::watch;
use tracing::{info, warn};

use crate::error::is_of_channel;
use crate::options::BrokerUrl;

/// The reports of the broker and the client about a connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct Alarm(watch::Sender<ConnectionReport>);

#[derive(Debug, Default)]
struct ConnectionReport {
    /// The broker's reason for blocking the connection, if the connection is blocked.
    blocked: Option<Arc<str>>,
    /// The error that has ended the connection.
    failed: Option<lapin::Error>,
}

impl Alarm {
    /// Starts a task that follows this new connection until its end.
    pub(crate) fn follow(&self, connection: &Connection, broker: &BrokerUrl) {
        self.0.send_replace(ConnectionReport::default());
        let (events, report, broker) = (connection.events_listener(), self.0.clone(), broker.clone());
        tokio::spawn(async move {
            let mut events = pin!(events);
            while let Some(event) = events.next().await {
                match event {
                    Event::ConnectionBlocked(reason) => {
                        warn!(target: "idempotent", %broker, reason, "the broker blocks publishers; copies and dead letters wait");
                        report.send_modify(|report| report.blocked = Some(reason.into()));
                    }
                    Event::ConnectionUnblocked => {
                        info!(target: "idempotent", %broker, "the broker accepts messages again");
                        report.send_modify(|report| report.blocked = None);
                    }
                    // The client reports the errors of channels, too.
                    Event::Error(error) if !is_of_channel(&error) => {
                        report.send_modify(|report| report.failed = Some(error));
                        break;
                    }
                    _ => {}
                }
            }
        });
    }

    /// Returns the broker's reason, or `None` if the connection is not blocked.
    pub(crate) fn reason(&self) -> Option<Arc<str>> {
        self.0.borrow().blocked.clone()
    }

    /// Waits until the connection is blocked, and returns the broker's reason.
    pub(crate) async fn raised(&self) -> Arc<str> {
        let mut changes = self.0.subscribe();
        // The channel is open, since `self` has its sender.
        let _ = changes.wait_for(|report| report.blocked.is_some()).await;
        self.reason().unwrap_or_default()
    }

    /// Waits for the error that ends the connection. The client does not report the error to all its callers.
    pub(crate) async fn failed(&self) -> lapin::Error {
        let mut changes = self.0.subscribe();
        loop {
            if let Some(error) = changes.borrow_and_update().failed.clone() {
                return error;
            }
            // The channel is open, since `self` has its sender.
            let _ = changes.changed().await;
        }
    }
}
