//! The data that an adapter adds to a message, and the places in which it believes this data.

/// The place in which an adapter found a message.
///
/// A producer can write the headers, attributes and columns of an adapter, too. An adapter therefore believes its data only where
/// the adapter itself wrote it:
///
/// | data | queue | retries | dead letters |
/// |---|---|---|---|
/// | [`Identity`](OwnData::Identity): message id, business key | yes, the producer sets them | yes | yes |
/// | [`History`](OwnData::History): deaths, time of the first delivery | yes, for operators only | yes | yes |
/// | [`Attempt`](OwnData::Attempt): attempt, due time | no | yes | no, a letter begins again |
/// | [`Origin`](OwnData::Origin): queue, topic, partition, subject, record key | no | yes | yes |
/// | [`Letter`](OwnData::Letter): reason, key that failed | no | no | yes |
///
/// The history of a message in its queue comes from a redrive or from its producer. It decides neither whether a handler runs nor to
/// which queue a message goes.
///
/// Even among dead letters, a letter returns only to the queue of the operator's handle: other programs write there, too.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum MessagePlace {
    /// The queue, topic or stream to which producers send.
    Queue,
    /// A place to which only the adapter sends, with a retry: a retry topic, a delay queue, or a queue whose messages carry the
    /// broker's own mark that they come from there.
    Retry,
    /// The dead letters.
    DeadLetters,
}

/// The kinds of data that an adapter adds to a message.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum OwnData {
    /// The message id and the business key.
    Identity,
    /// The number of deaths and the time of the first delivery.
    History,
    /// The number of the attempt and the due time.
    Attempt,
    /// The queue, topic, partition, subject or record key of the original message.
    Origin,
    /// The reason of a dead letter, the key that failed, and the time of the death.
    Letter,
}

impl MessagePlace {
    /// Returns true if an adapter believes this data of a message from this place.
    #[must_use]
    pub const fn believes(self, data: OwnData) -> bool {
        match data {
            OwnData::Identity | OwnData::History => true,
            OwnData::Attempt => matches!(self, Self::Retry),
            OwnData::Origin => matches!(self, Self::Retry | Self::DeadLetters),
            OwnData::Letter => matches!(self, Self::DeadLetters),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_believes_what_the_table_says() {
        let source = include_str!("own_data.rs");
        let all = [OwnData::Identity, OwnData::History, OwnData::Attempt, OwnData::Origin, OwnData::Letter];
        for data in all {
            let row = source.lines().find(|line| line.contains(&format!("(OwnData::{data:?}):"))).unwrap_or_default();
            let cells: Vec<_> = row.split('|').map(str::trim).skip(2).take(3).collect();
            let places = [MessagePlace::Queue, MessagePlace::Retry, MessagePlace::DeadLetters];
            let believed = places.map(|place| place.believes(data));
            assert_eq!(cells.iter().map(|cell| cell.starts_with("yes")).collect::<Vec<_>>(), believed, "{data:?}");
        }
    }
}
