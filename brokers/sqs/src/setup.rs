//! Opening, creating and checking queues.
use std::time::Duration;

use aws_sdk_sqs::Client;
use aws_sdk_sqs::types::QueueAttributeName;
use idempotent_mq::SourceError;
use serde_json::Value;

use crate::address::QueueAddress;
use crate::error::{Failure, fatal};
use crate::queue::{Queue, answered};

/// The time limit for an answer, in seconds.
const ANSWER: u64 = 10;
/// The time after which SQS accepts requests for a new queue everywhere.
const SPREADING: Duration = Duration::from_secs(1);
/// The time for which SQS keeps dead letters: the maximum, in seconds.
const RETENTION: &str = "1209600";

/// A purpose of a queue that is created.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Purpose {
    Messages,
    DeadLetters,
}

/// Opens a queue without a check of its attributes.
///
/// # Errors
/// The queue does not exist, or SQS refuses the request.
pub(crate) async fn open(client: &Client, address: &QueueAddress) -> Result<Queue, Failure> {
    let url = match &address.url {
        Some(url) => url.clone(),
        None => {
            let find = client.get_queue_url().queue_name(&address.name);
            answered(&opening(&address.name), ANSWER, find.send()).await?.queue_url.unwrap_or_default()
        }
    };
    Ok(Queue::new(client.clone(), &url, &address.name))
}

/// Opens a queue and reads its attributes, or creates it for this purpose if it does not exist.
///
/// # Errors
/// - `Fatal`: the queue does not exist, or SQS refuses a request.
/// - `Transient`: SQS cannot be reached, or the credentials cannot be loaded or have expired.
pub(crate) async fn open_checked(
    client: &Client,
    address: &QueueAddress,
    creates: Option<Purpose>,
) -> Result<(Queue, QueueState), SourceError> {
    address.check_region(client)?;
    let found = async {
        let mut queue = open(client, address).await?;
        let state = state(client, &mut queue).await?;
        Ok::<_, Failure>((queue, state))
    };
    match (found.await, creates) {
        (Ok(found), _) => Ok(found),
        (Err(failure), Some(purpose)) if failure.is_missing_queue() => {
            let queue = create(client, address, purpose).await?;
            tokio::time::sleep(SPREADING).await;
            Ok((queue, QueueState::default()))
        }
        (Err(failure), _) => Err(failure.source()),
    }
}

async fn create(client: &Client, address: &QueueAddress, purpose: Purpose) -> Result<Queue, SourceError> {
    let doing = format!("creating the queue `{}`", address.name);
    let mut create = client.create_queue().queue_name(&address.name);
    if address.is_fifo() {
        create = create.attributes(QueueAttributeName::FifoQueue, "true");
    }
    if purpose == Purpose::DeadLetters {
        create = create.attributes(QueueAttributeName::MessageRetentionPeriod, RETENTION);
    }
    let created = answered(&doing, ANSWER, create.send()).await.map_err(|failure| failure.source())?;
    let url = created.queue_url.unwrap_or_default();
    if address.url.as_ref().is_some_and(|given| given.trim_end_matches('/') != url) {
        let remedy = format!("the client creates `{url}`; use its account and region, or the name instead of the URL");
        return Err(fatal(&doing, &remedy));
    }
    Ok(Queue::new(client.clone(), &url, &address.name))
}

/// The attributes of a queue that matter to a source.
#[derive(Debug, Default)]
pub(crate) struct QueueState {
    /// The redrive policy: the number of receives, and the queue of the dead letters.
    pub(crate) redrive: Option<(u32, String)>,
}

/// Reads the attributes of a queue, and sets its largest message.
async fn state(client: &Client, queue: &mut Queue) -> Result<QueueState, Failure> {
    // A standard queue refuses requests for attributes of FIFO queues by name.
    let get = client.get_queue_attributes().queue_url(queue.url()).attribute_names(QueueAttributeName::All);
    let attributes = answered(&opening(&queue.name), ANSWER, get.send()).await?.attributes.unwrap_or_default();
    let largest = attributes.get(&QueueAttributeName::MaximumMessageSize);
    queue.largest = largest.and_then(|text| text.parse().ok()).unwrap_or(queue.largest);
    Ok(QueueState { redrive: attributes.get(&QueueAttributeName::RedrivePolicy).and_then(|text| redrive(text)) })
}

/// Returns the number of messages that can be received now, approximately.
pub(crate) async fn count(client: &Client, queue: &Queue, doing: &str) -> Result<u64, SourceError> {
    let get = client.get_queue_attributes().queue_url(queue.url());
    let get = get.attribute_names(QueueAttributeName::ApproximateNumberOfMessages);
    let answer = answered(doing, ANSWER, get.send()).await.map_err(|failure| failure.source())?;
    let attributes = answer.attributes.unwrap_or_default();
    let number = attributes.get(&QueueAttributeName::ApproximateNumberOfMessages);
    Ok(number.and_then(|text| text.parse().ok()).unwrap_or(0))
}

fn opening(name: &str) -> String {
    format!("opening the queue `{name}`")
}

/// Parses a redrive policy. SQS accepts the number as a string, too.
fn redrive(policy: &str) -> Option<(u32, String)> {
    let policy: Value = serde_json::from_str(policy).ok()?;
    let most = &policy["maxReceiveCount"];
    let most = most.as_u64().or_else(|| most.as_str()?.parse().ok())?;
    Some((most.try_into().ok()?, policy["deadLetterTargetArn"].as_str()?.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_redrive_policy_has_a_number_and_a_queue() {
        let expected = Some((5, "arn:aws:sqs:eu-west-1:1:dlq".to_owned()));
        for number in ["5", "\"5\""] {
            let policy =
                format!(r#"{{"deadLetterTargetArn": "arn:aws:sqs:eu-west-1:1:dlq", "maxReceiveCount": {number}}}"#);
            assert_eq!(redrive(&policy), expected);
        }
        for damaged in ["", "{}", r#"{"maxReceiveCount": 5}"#, r#"{"maxReceiveCount": -1, "deadLetterTargetArn": "a"}"#]
        {
            assert_eq!(redrive(damaged), None);
        }
    }
}
