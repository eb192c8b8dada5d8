//! `--source` in a build without the feature `servers`: an error that names the command for a build with it.
use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;

use anyhow::bail;

use crate::Job;
use crate::args::Args;
use crate::input::Input;
use crate::screen::Screen;
use crate::summary::Over;

/// A queue, of which there is none in this build.
#[derive(Debug)]
pub(crate) struct Queue(Infallible);

impl Queue {
    pub(crate) fn parse(_: &str) -> anyhow::Result<Self> {
        bail!(
            "--source: this build has no broker clients; run `cargo run --features servers --bin consume`, \
             or with `--features rocketmq`, `kafka`, `kafka-tls` or `sqs` for one of these brokers"
        )
    }

    pub(crate) async fn declare(&self) -> anyhow::Result<()> {
        match self.0 {}
    }

    pub(crate) async fn publish(&self, _: Input, _: &Screen) -> anyhow::Result<()> {
        match self.0 {}
    }

    pub(crate) async fn consume(&self, _: &Arc<Job>, _: &Args, _: &str) -> anyhow::Result<Over> {
        match self.0 {}
    }
}

impl fmt::Display for Queue {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {}
    }
}
