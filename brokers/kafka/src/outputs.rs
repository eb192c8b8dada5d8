//! The messages that handlers add to the transaction of their delivery.
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::message::Copy;

/// A message that is produced in a transaction.
#[derive(Debug)]
pub(crate) struct Output {
    pub(crate) topic: String,
    pub(crate) copy: Copy,
}

/// The messages of the deliveries of one partition, by the offsets of the deliveries.
#[derive(Debug, Default)]
pub(crate) struct Outputs(BTreeMap<i64, Vec<Arc<Output>>>);

impl Outputs {
    pub(crate) fn add(&mut self, offset: i64, output: Output) {
        self.0.entry(offset).or_default().push(Arc::new(output));
    }

    /// Removes the messages of a delivery that is not acknowledged.
    pub(crate) fn discard(&mut self, offset: i64) {
        self.0.remove(&offset);
    }

    /// Returns the messages of the deliveries before this offset, in the order of the deliveries.
    pub(crate) fn before(&self, offset: i64) -> impl Iterator<Item = Arc<Output>> {
        self.0.range(..offset).flat_map(|(_, outputs)| outputs.iter().cloned())
    }

    /// Removes the messages before this offset, which are produced.
    pub(crate) fn produced(&mut self, offset: i64) {
        self.0 = self.0.split_off(&offset);
    }
}
