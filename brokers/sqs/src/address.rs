//! Names and URLs of queues.
use aws_sdk_sqs::Client;
use idempotent_mq::SourceError;

use crate::error::fatal;
use crate::fifo::SUFFIX;

/// The valid name of a queue, and its URL if the URL was given.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct QueueAddress {
    pub(crate) name: String,
    pub(crate) url: Option<String>,
}

/// The maximum length of a name, including the end of the name of a FIFO queue.
const LONGEST: usize = 80;

impl QueueAddress {
    /// Parses the name or the URL of a queue. `what` is the setting, for the error.
    ///
    /// # Errors
    /// The text is neither a valid name nor a URL with one.
    pub(crate) fn parse(what: &str, text: &str) -> Result<Self, SourceError> {
        let path = match text.split_once("://") {
            Some(("https" | "http", rest)) => rest.split_once('/').map(|(_, path)| path.trim_end_matches('/')),
            Some(_) => None,
            None => Some(text),
        };
        let name = path.map(|path| path.rsplit('/').next().unwrap_or_default()).unwrap_or_default();
        let is_url = text.contains("://");
        if !is_name(name) || (!is_url && name != text) {
            let remedy = format!(
                "`{what}` is `{text}`; use a name of 1 to {LONGEST} letters, digits, `-` and `_`, with `{SUFFIX}` at the end of \
                 the name of a FIFO queue, or the URL of a queue, such as `https://sqs.REGION.amazonaws.com/ACCOUNT/QUEUE`"
            );
            return Err(fatal("checking the settings", &remedy));
        }
        Ok(Self { name: name.to_owned(), url: is_url.then(|| text.to_owned()) })
    }

    pub(crate) fn is_fifo(&self) -> bool {
        self.name.ends_with(SUFFIX)
    }

    /// Returns the address of the queue of the dead letters that belongs to this one by default.
    pub(crate) fn dead(&self) -> Self {
        let name = match self.name.strip_suffix(SUFFIX) {
            Some(name) => format!("{name}-dead{SUFFIX}"),
            None => format!("{}-dead", self.name),
        };
        let url = self.url.as_ref().map(|url| {
            let account = url.trim_end_matches('/').strip_suffix(&*self.name).unwrap_or_default();
            format!("{account}{name}")
        });
        Self { name, url }
    }

    /// Checks that the client and a URL of AWS have the same region.
    ///
    /// # Errors
    /// The regions are different.
    pub(crate) fn check_region(&self, client: &Client) -> Result<(), SourceError> {
        let (Some(of_url), Some(own)) = (self.url.as_deref().and_then(region), client.config().region()) else {
            return Ok(());
        };
        if of_url == own.as_ref() {
            return Ok(());
        }
        let remedy =
            format!("its URL is in the region `{of_url}`, and the client in `{own}`; create a client of `{of_url}`");
        Err(fatal(&format!("opening the queue `{}`", self.name), &remedy))
    }
}

/// Returns the region in a URL of AWS.
fn region(url: &str) -> Option<&str> {
    let host = url.split_once("://")?.1.split('/').next()?;
    let (region, rest) = host.strip_prefix("sqs.")?.split_once('.')?;
    ["amazonaws.com", "amazonaws.com.cn"].contains(&rest).then_some(region)
}

fn is_name(name: &str) -> bool {
    let stem = name.strip_suffix(SUFFIX).unwrap_or(name);
    let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    !stem.is_empty() && name.len() <= LONGEST && stem.bytes().all(is_valid)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> (String, Option<String>) {
        let address = QueueAddress::parse("queue", text).unwrap();
        (address.name, address.url)
    }

    #[test]
    fn a_queue_is_a_name_or_a_url() {
        assert_eq!(parsed("orders"), ("orders".to_owned(), None));
        assert_eq!(parsed("Or-ders_1.fifo"), ("Or-ders_1.fifo".to_owned(), None));
        for url in ["https://sqs.eu-west-1.amazonaws.com/123456789012/orders", "http://127.0.0.1:4566/1/orders"] {
            assert_eq!(parsed(url), ("orders".to_owned(), Some(url.to_owned())));
        }
        let too_long = "a".repeat(LONGEST + 1);
        for bad in ["", ".fifo", "or ders", "a/b", "orders.fifo.fifo", "arn:aws:sqs:eu-west-1:1:orders", &too_long] {
            let error = QueueAddress::parse("queue", bad).unwrap_err().to_string();
            assert!(error.contains(&format!("`queue` is `{bad}`; use a name")), "{error}");
        }
        for bad in ["https://sqs.eu-west-1.amazonaws.com", "https://host/", "sqs://host/1/orders"] {
            QueueAddress::parse("queue", bad).unwrap_err();
        }
    }

    #[test]
    fn dead_letters_have_a_queue_of_the_same_kind_and_account() {
        let dead = |text: &str| QueueAddress::parse("queue", text).unwrap().dead();
        assert_eq!(dead("orders"), QueueAddress { name: "orders-dead".to_owned(), url: None });
        assert_eq!(dead("orders.fifo").name, "orders-dead.fifo");
        let url = dead("https://sqs.eu-west-1.amazonaws.com/1/orders/").url;
        assert_eq!(url.as_deref(), Some("https://sqs.eu-west-1.amazonaws.com/1/orders-dead"));
    }

    #[test]
    fn only_a_url_of_aws_has_a_region() {
        assert_eq!(region("https://sqs.eu-west-1.amazonaws.com/1/orders"), Some("eu-west-1"));
        assert_eq!(region("https://sqs.cn-north-1.amazonaws.com.cn/1/orders"), Some("cn-north-1"));
        assert_eq!(region("http://127.0.0.1:4566/1/orders"), None);
        assert_eq!(region("https://sqs.example.com/1/orders"), None);
    }
}
